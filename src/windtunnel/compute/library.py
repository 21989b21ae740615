"""The library that a framework calls for a kernel class."""

from __future__ import annotations

from windtunnel.compute.curves import KernelCurves
from windtunnel.compute.device import NARROW
from windtunnel.spec.runtime import Runtime

PREFERENCE = {"torchtitan": ("fa2", "cudnn", "fa3"), "fsdp": ("fa2", "cudnn", "fa3")}
"""Framework -> libraries in its order of preference. PyTorch's scaled_dot_product_attention calls FlashAttention-2."""

OTHERWISE = ("cudnn", "fa3", "fa2")
"""Transformer Engine (Megatron, NeMo and what builds on them) prefers cuDNN or FlashAttention-3 where the GPU has them."""


LIBRARY_NAMES = {"fa1": "FlashAttention 1", "fa2": "FlashAttention 2", "fa3": "FlashAttention 3", "cudnn": "cuDNN"}

FA1_OVER_FA2 = 2.0
"""Time of FlashAttention 1 and of Triton's kernel over FlashAttention-2's: "around 2x" (Dao 2023, arXiv 2307.08691, abstract)."""


def attention_factor(runtime: Runtime) -> float:
    """Factor on the curve of the library that `attention_library` returns."""
    return FA1_OVER_FA2 if runtime.attention_library == "fa1" else 1.0


def attention_library(runtime: Runtime, kernels: KernelCurves) -> str:
    """Key of `KernelCurves.attention` that `runtime` uses."""
    if runtime.attention_library is not None:
        preferred = "fa2" if runtime.attention_library == "fa1" else runtime.attention_library
        if preferred in kernels.attention:
            return preferred
    for name in PREFERENCE.get(runtime.framework, OTHERWISE):
        if name in kernels.attention:
            return name
    return next(iter(kernels.attention))


def in_format(library: str, dtype: str) -> str:
    """Key of a library's attention kernels in 8 bits, such as "cudnn mxfp8"; `library` itself for 16 bits or more."""
    return f"{library} {dtype}" if dtype in NARROW else library


def missing_library(runtime: Runtime, kernels: KernelCurves) -> tuple[str, str] | None:
    """(the library that `runtime` asks for, the one whose curve stands in for it) where `kernels` have no curve of the former."""
    asked = runtime.attention_library
    if asked is None or ("fa2" if asked == "fa1" else asked) in kernels.attention:
        return None
    return asked, attention_library(runtime, kernels)


def memory_class(name: str, runtime: Runtime) -> str:
    """Table of a kernel that moves bytes; Megatron's fused scale-mask-softmax has a table of its own beside PyTorch's softmax."""
    if name == "softmax" and runtime.attention != "fused_softmax":
        return "softmax_native"
    return name


def default_attention(architecture: str) -> str:
    """Library of attention rows without a library: Transformer Engine's choice."""
    return "cudnn" if architecture in ("hopper", "blackwell") else "fa2"
