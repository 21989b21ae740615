"""Loads the device into this process, before torch is imported."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

from windtunnel.capture import torch_cuda
from windtunnel.capture.torch_cuda import Card

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
