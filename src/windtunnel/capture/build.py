"""Compiles the device against the installed PyTorch, once for each of its builds. Loads the device into this process, before torch
is imported.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import types
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, NotInstalled, SpecError
from windtunnel.capture import torch_cuda
from windtunnel.capture.torch_cuda import Card

SOURCES = ("operators.cpp", "tensors.cpp", "values.cpp", "operator_log.cpp", "device.cpp", "groups.cpp", "module.cpp")
_FOLDER = Path(__file__).parent / "device"


def device_library(progress: Callable[[str], object] | None = None) -> Path:
    """The device's shared library, compiled if it isn't there yet (half a minute).

    It lies in `$XDG_CACHE_HOME/windtunnel` (`~/.cache`). NotInstalled without PyTorch; SpecError for a build of PyTorch that has
    CUDA itself, and where the compiler is missing or fails.
    """
    torch, about = _torch()
    digest = hashlib.sha256(about.encode())
    for path in sorted(_FOLDER.iterdir()):
        digest.update(path.read_bytes() if path.suffix in (".cpp", ".hpp") else b"")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windtunnel"
    library = cache / f"capture-{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = library.with_suffix(".lock").open("w")
    except OSError as error:
        raise FileError(str(cache), error.strerror or str(error), "a folder that can be made", "Set XDG_CACHE_HOME.") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second waits, and finds it made
        if not library.exists():
            if progress is not None:
                progress("compiling the device for this PyTorch, once")
            _compile(torch, library)
    return library


def _torch() -> tuple[Path, str]:
    """The folder of the installed PyTorch, and what tells it from others."""
    spec = importlib.util.find_spec("torch")
    try:
        about = version("torch")
    except PackageNotFoundError:
        about = ""
    if spec is None or spec.origin is None or not about:
        raise NotInstalled("capture needs PyTorch. Type: pip install 'windtunnel[torch]'", name="torch")
    folder = Path(spec.origin).parent
    if any((folder / "lib").glob("libtorch_cuda*")):
        raise SpecError(
            "torch", about, "a build of PyTorch for CPUs, whose place for CUDA is empty",
            "Install PyTorch for CPUs in an environment of its own (pytorch.org, Get Started, CPU).",
        )  # fmt: skip
    return folder, f"{about} {sysconfig.get_config_var('SOABI')} {folder}"  # the library names the folder of those that it needs


def _compile(torch: Path, library: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise SpecError("CXX", "no compiler", "g++ or clang++, which compiles the device once", "Type: apt install g++")
    work = library.with_suffix(f".{os.getpid()}")
    work.mkdir()
    include = [torch / "include", torch / "include" / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_path("include"))]
    flags = ["-std=c++20", "-O1", "-fPIC", "-w", "-DUSE_DISTRIBUTED", "-DUSE_C10D", *(f"-I{folder}" for folder in include)]
    link = [f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python", f"-Wl,-rpath,{torch / 'lib'}"]
    # All files in one unit: to read PyTorch's headers takes longer than the rest of a file.
    unit, made = work / "unit.cpp", work / "device.so"
    try:
        unit.write_text("".join(f'#include "{_FOLDER / name}"\n' for name in SOURCES))
        command = [compiler, *flags, "-shared", str(unit), "-o", str(made), *link]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise SpecError("CXX", compiler, "a compiler that builds PyTorch's extensions", ran.stderr.strip()[-1000:])
        made.replace(library)  # whole or not at all
    finally:
        shutil.rmtree(work, ignore_errors=True)


NAME = "windtunnel_capture_device"
_LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_python.so")
_BY_HAND = frozenset((
    "empty.memory_format", "empty_strided", "as_strided", "view", "_reshape_alias", "unfold", "view_as_real",
    "view_as_complex", "resize_", "record_stream",
    "set_.source_Storage_storage_offset", "set_.source_Storage", "set_.source_Tensor", "set_", "set_.source_Tensor_storage_offset",
    "_local_scalar_dense", "copy_", "_copy_from", "equal", "is_pinned", "_fused_sdp_choice", "_pin_memory",
))  # fmt: skip


_BY_RULE = ("isfinite", "isinf")
"""Operators that are composed of others, and are recorded whole: a rule answers them."""


def load_device(library: Path, card: Card) -> tuple[Any, Any]:
    """torch with a `cuda` device, and the recorder. RuntimeError if torch is imported already."""
    if "torch" in sys.modules:
        raise RuntimeError("the device has to be loaded before torch")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch")
    # The library comes first, so that its answers to what accelerator there is are found before torch's own.
    sys.setdlopenflags(sys.getdlopenflags() | ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    for name in _LIBRARIES:
        ctypes.CDLL(str(Path(spec.origin).parent / "lib" / name), ctypes.RTLD_GLOBAL)
    import torch

    found = importlib.util.spec_from_file_location(NAME, library)
    if found is None or found.loader is None:
        raise ModuleNotFoundError(NAME)
    device = importlib.util.module_from_spec(found)
    found.loader.exec_module(device)
    torch_cuda.put_in(torch, device, card)
    device.register_operators(operators_with_kernels(torch))
    return torch, device


def operators_with_kernels(torch: types.ModuleType) -> list[str]:
    """Operators that have a kernel of their own on CUDA, by the table that PyTorch's wheel holds."""
    import yaml

    table = Path(str(torch.__file__)).parents[1] / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    names = list(_BY_RULE)
    for function in yaml.load(table.read_text(), loader):
        kernels = [key.strip() for keys in function.get("dispatch", {}) for key in keys.split(",")]
        name = str(function["func"]).partition("(")[0]
        if ("CUDA" in kernels or function.get("structured_delegate")) and name not in _BY_HAND:
            names.append(name)
    return names
