"""The loss over a vocabulary that ranks share: the logits become their gradient in place (Triton kernels of 2.x)."""

from typing import Any

import torch

from windtunnel.capture.fused import gather, kernel

_softmax = kernel(
    "transformer_engine::online_softmax(Tensor logits, Tensor target) -> Tensor",
    lambda logits, target: logits.new_empty((logits[..., 0].numel() * 3,), dtype=torch.float32),
)
_loss = kernel(
    "transformer_engine::cross_entropy(Tensor(a!) logits, Tensor target, Tensor sums) -> Tensor",
    lambda logits, target, sums: logits.new_empty(target.shape, dtype=torch.float32),
)
_scale = kernel("transformer_engine::element_mul(Tensor(a!) logits, Tensor grad) -> ()", lambda *_: None)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Any, target: Any, group: Any) -> Any:
        sums = _softmax(logits, target)
        if group is not None and group.size() > 1:
            sums = gather(sums, group)
        loss = _loss(logits, target, sums)
        ctx.save_for_backward(logits.detach())
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (logits,) = ctx.saved_tensors
        _scale(logits, grad)
        return logits, None, None


def parallel_cross_entropy(
    logits: Any, target: Any, label_smoothing: float = 0.0, reduce_loss: bool = False, dist_process_group: Any = None, *_: Any
) -> Any:
    loss = _CrossEntropy.apply(logits, target, dist_process_group)
    return loss.mean() if reduce_loss else loss
