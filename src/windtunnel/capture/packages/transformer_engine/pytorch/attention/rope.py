"""Rotary embeddings as one kernel forward and one backward."""

from typing import Any

import torch

from windtunnel.capture.fused import kernel

_rope = kernel(
    "transformer_engine::fused_rope(Tensor tensor, Tensor freqs) -> Tensor",
    lambda tensor, freqs: tensor.new_empty(tensor.shape),
)


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, freqs: Any) -> Any:
        ctx.freqs = freqs
        return _rope(tensor, freqs)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _rope(grad, ctx.freqs), None


def apply_rotary_pos_emb(t: Any, freqs: Any, tensor_format: str = "sbhd", **_: Any) -> Any:
    return _Rope.apply(t, freqs)
