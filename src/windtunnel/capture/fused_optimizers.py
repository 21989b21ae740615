"""Optimizers and functions of Apex and Transformer Engine that update lists of tensors in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from windtunnel.capture.fused import kernel

_adam = kernel(
    "multi_tensor::adam(Tensor[] grads, Tensor(a!)[] parameters, Tensor(b!)[] averages, Tensor(c!)[] squares) -> ()",
    lambda *_: None,
)
_sgd = kernel("multi_tensor::sgd(Tensor[] grads, Tensor(a!)[] parameters, Tensor(b!)[] momenta) -> ()", lambda *_: None)
_scale = kernel("multi_tensor::scale(Tensor[] given, Tensor(a!)[] out) -> ()", lambda *_: None)
_norm = kernel(
    "multi_tensor::l2norm(Tensor[] tensors, int parts) -> (Tensor, Tensor)",
    lambda tensors, parts: (
        tensors[0].new_empty(1, dtype=torch.float32), tensors[0].new_empty(parts, dtype=torch.float32)
    ),
)  # fmt: skip


def multi_tensor_applier(operator: Callable[..., Any], overflow: Any, lists: list[list[Any]], *given: Any) -> Any:
    """Calls an operator of lists of tensors."""
    return operator(2048 * 32, overflow, lists, *given)


def multi_tensor_l2norm(chunk: int, overflow: Any, lists: list[list[Any]], per_tensor: bool = False, *_: Any) -> Any:
    """The norm of all tensors, and of each."""
    return _norm(lists[0], len(lists[0]) if per_tensor else 0)


def multi_tensor_scale(chunk: int, overflow: Any, lists: list[list[Any]], scale: float) -> None:
    """Scaled copies of tensors."""
    _scale(lists[0], lists[1])


class FusedAdam(torch.optim.Optimizer):
    """AdamW whose update is one kernel a group. States are fp32."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, **_: Any) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "bias_correction": True})

    @torch.no_grad()
    def step(self, closure: Any = None, grad_scaler: Any = None) -> Any:
        """One update."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            trained = [parameter for parameter in group["params"] if _gradient(parameter) is not None]
            for parameter in trained:
                if not self.state[parameter]:
                    like = {"dtype": torch.float32}
                    self.state[parameter] |= {name: torch.zeros_like(parameter, **like) for name in ("exp_avg", "exp_avg_sq")}
            states = [[self.state[parameter][name] for parameter in trained] for name in ("exp_avg", "exp_avg_sq")]
            if trained:
                _adam([_gradient(parameter) for parameter in trained], trained, *states)
        return loss


def _gradient(parameter: Any) -> Any:
    return parameter.grad if parameter.grad is not None else getattr(parameter, "decoupled_grad", None)


class FusedSGD(torch.optim.Optimizer):
    """SGD with momentum whose update is one kernel a group."""

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.0, **_: Any) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in trained if group["momentum"] else ():
                self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
            momenta = [self.state[parameter]["momentum_buffer"] for parameter in trained if group["momentum"]]
            if trained:
                _sgd([parameter.grad for parameter in trained], trained, momenta)
        return loss
