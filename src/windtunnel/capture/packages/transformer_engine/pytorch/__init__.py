"""Modules of Transformer Engine for PyTorch."""

from transformer_engine.pytorch import cpp_extensions, cross_entropy, distributed, fp8, module, ops, optimizers
from transformer_engine.pytorch.attention import DotProductAttention
from transformer_engine.pytorch.fp8 import fp8_autocast, fp8_model_init
from transformer_engine.pytorch.grouped import Fp8Padding, Fp8Unpadding, GroupedLinear
from transformer_engine.pytorch.linear import LayerNormLinear, Linear
from transformer_engine.pytorch.norms import LayerNorm, RMSNorm
from transformer_engine.pytorch.whole import LayerNormMLP, MultiheadAttention, TransformerLayer

__all__ = [
    "DotProductAttention", "Fp8Padding", "Fp8Unpadding", "GroupedLinear", "LayerNorm", "LayerNormLinear", "LayerNormMLP", "Linear",
    "MultiheadAttention", "RMSNorm", "TransformerLayer",
    "cpp_extensions", "cross_entropy", "distributed", "fp8", "fp8_autocast", "fp8_model_init", "module", "ops", "optimizers",
]  # fmt: skip
