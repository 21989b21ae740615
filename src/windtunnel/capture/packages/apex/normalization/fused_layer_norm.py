"""Apex's layer norm as a function."""

from typing import Any

import torch

from windtunnel.capture.fused import Norm, add_note, norm_backward, norm_forward


class FusedLayerNormAffineFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float, memory_efficient: bool = False
    ) -> Any:
        add_note("apex is not installed: its kernels are stood in for by their shapes")
        return Norm.forward(ctx, input, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return *Norm.backward(ctx, grad_output), None, None, None


__all__ = ["FusedLayerNormAffineFunction", "norm_backward", "norm_forward"]
