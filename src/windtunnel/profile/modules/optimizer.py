"""The parameter update: AdamW, on the parameters or on fp32 copies of them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class TimedUpdate:
    """AdamW over `parameters`. With `master`, 16-bit parameters have fp32 copies that are stepped and cast back."""

    def __init__(self, parameters: Iterable[Tensor], master: bool) -> None:
        self.parameters = list(parameters)
        self.master = master and any(p.dtype is not torch.float32 for p in self.parameters)
        self.stepped = [p.detach().float().requires_grad_() for p in self.parameters] if self.master else self.parameters
        self.adam = torch.optim.AdamW(self.stepped, fused=True)

    def step(self) -> None:
        """One update from the parameters' gradients."""
        if self.master:
            for copy, parameter in zip(self.stepped, self.parameters, strict=True):
                copy.grad = None if parameter.grad is None else parameter.grad.float()
        self.adam.step()
        if self.master:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.stepped)
            for copy in self.stepped:
                copy.grad = None

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None
