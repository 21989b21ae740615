"""Modules of Transformer Engine for PyTorch."""

from typing import Any

import torch

from transformer_engine.pytorch import cpp_extensions, cross_entropy, distributed, fp8, module, ops, optimizers
from transformer_engine.pytorch.attention import DotProductAttention
from transformer_engine.pytorch.fp8 import fp8_autocast, fp8_model_init
from transformer_engine.pytorch.grouped import Fp8Padding, Fp8Unpadding, GroupedLinear
from transformer_engine.pytorch.linear import LayerNormLinear, Linear
from transformer_engine.pytorch.norms import LayerNorm, RMSNorm
from windtunnel.capture.fused import refuse

__all__ = [
    "DotProductAttention", "Fp8Padding", "Fp8Unpadding", "GroupedLinear", "LayerNorm", "LayerNormLinear", "LayerNormMLP", "Linear",
    "MultiheadAttention", "RMSNorm", "TransformerLayer",
    "cpp_extensions", "cross_entropy", "distributed", "fp8", "fp8_autocast", "fp8_model_init", "module", "ops", "optimizers",
]  # fmt: skip


class LayerNormMLP(torch.nn.Module):
    """Modules of several layers have no stand-in: others ask whether a module is one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise refuse(f"{type(self).__name__} of Transformer Engine")


class MultiheadAttention(LayerNormMLP): ...


class TransformerLayer(LayerNormMLP): ...
