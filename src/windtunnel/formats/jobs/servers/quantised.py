"""Words by which servers quantise a checkpoint themselves."""

from __future__ import annotations

import re


def weights_of(quantization: str) -> str | None:
    """The number format that a server's own quantising makes of a 16-bit checkpoint; None for a word that is not known."""
    return next((form for words, form in _QUANTISED if re.fullmatch(words, quantization)), None)


_QUANTISED = (
    (r"fp8|ptpc_fp8|w8a8_fp8|fbgemm_fp8|fp8_pb|modelopt(_fp8)?|fp8_per_(tensor|channel).*|eetq_fp8", "fp8"),
    (r"fp8_block.*|blockwise_fp8|deepseek_fp8|mxfp8|fp8_per_block", "fp8_block"),
    (r"modelopt_fp4|nvfp4.*|petit_nvfp4|w4a4.*", "nvfp4"),
    (r"mxfp4|quark|w4afp8_mx", "mxfp4"),
    (r"awq.*|gptq.*|moe_wna16|w4a16.*|w4afp8|int4.*|auto-round|hqq|w4a8.*|compressed-tensors|gguf|torchao", "int4"),
    (r"w8a8_int8|int8|smooth_?quant|w8a8.*", "w8a8"),
    (r"experts_int8|eetq|w8a16.*|tpu_int8", "int8"),
    (r"bitsandbytes|bitsandbytes-nf4|bnb.*", "nf4"),
)
"""Words of --quantization -> number format."""
