"""Bytes of number formats."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.base.dataclasses import dataclass

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


@dataclass(frozen=True)
class WeightFormat:
    """A number format of weights. `width`: bytes of a number with its scales. `peaks`: keys of `GPU.peak`, of which hardware needs
    one to multiply in it; without any, kernels widen weights to 16 bits as they read them (weight-only: Marlin, Machete,
    bitsandbytes). `widened`: the weight-only format whose kernels run it on other hardware. `stands_in`: formats whose curves stand
    in for missing ones, the likest first. `what`: in words."""

    width: float
    what: str
    peaks: tuple[str, ...] = ()
    widened: str = ""
    stands_in: tuple[str, ...] = ()

    @property
    def weight_only(self) -> bool:
        """Whether products are in 16 bits on any hardware."""
        return not self.peaks and self.width < 2.0


FORMATS: Mapping[str, WeightFormat] = {
    "bf16": WeightFormat(2.0, "16 bits"),
    "fp8": WeightFormat(1.0, "FP8 with a scale for each tensor or row", ("fp8",), "int8", ("fp8_block",)),
    "fp8_block": WeightFormat(1.0, "FP8 with a scale for each block of 128", ("fp8",), "int8", ("fp8",)),
    "nvfp4": WeightFormat(0.5 + 1.0 / 16, "4-bit floats with a scale of a byte for 16", ("nvfp4", "fp4"), "int4"),
    "mxfp4": WeightFormat(
        0.5 + 1.0 / 32, "4-bit floats with a scale of a byte for 32, inputs in MXFP8", ("nvfp4", "fp4"), "mxfp4_wide", ("nvfp4",)
    ),
    "mxfp4_wide": WeightFormat(0.5 + 1.0 / 32, "the same, weight-only", stands_in=("int4",)),
    "int4": WeightFormat(0.5 + 2.5 / 128, "4-bit integers, a scale for 128 (AWQ, GPTQ, W4A16)", stands_in=("mxfp4_wide", "int8")),
    "int8": WeightFormat(1.0, "8-bit integers with a scale for a row, weight-only (W8A16)", stands_in=("int4",)),
    "w8a8": WeightFormat(1.0, "8-bit integers for weights and inputs (SmoothQuant)", ("int8", "fp8"), "int8", ("fp8",)),
    "nf4": WeightFormat(0.5 + 1.0 / 64, "bitsandbytes' 4 bits, scales too, weight-only", stands_in=("int4", "mxfp4_wide")),
}
"""Number formats of weights (OCP MX 1.0; NVIDIA's NVFP4; AWQ's and GPTQ's usual groups of 128)."""

STATED = tuple(form for form in FORMATS if form != "mxfp4_wide")
"""Formats that a checkpoint has; the other one is how hardware without block-scaled products runs one of them."""
