"""Compiles the device against the installed PyTorch, once for each of its builds."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from windtunnel.base.errors import FileError, NotInstalled, SpecError

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
