"""Bytes of number formats."""

from __future__ import annotations

DTYPE_BYTES: dict[str, float] = {
    "fp32": 4.0,
    "tf32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "mxfp8": 1.0,
    "nvfp4": 0.5,
}
"""Bytes of an element."""

SCALE_BYTES = {"mxfp8": 1.0 / 32, "nvfp4": 1.0 / 16}
"""Bytes of block scales beside an element: a byte for 32 elements of mxfp8, for 16 of nvfp4 (OCP MX 1.0; NVIDIA's NVFP4)."""
