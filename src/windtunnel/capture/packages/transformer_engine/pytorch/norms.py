"""Norms as one kernel forward and one backward."""

from typing import Any

import torch

from windtunnel.capture.fused import Norm


def make_parameter(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    device = torch.device("cuda", device) if isinstance(device, int) else device
    return torch.nn.Parameter(torch.empty(shape, dtype=dtype or torch.get_default_dtype(), device=device))


class RMSNorm(torch.nn.Module):
    def __init__(
        self, normalized_shape: Any = None, eps: float = 1e-5, sequence_parallel: bool = False, params_dtype: Any = None,
        zero_centered_gamma: bool = False, hidden_size: int | None = None, device: Any = "cuda", dtype: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        self.weight = make_parameter((hidden_size or normalized_shape,), params_dtype or dtype, device)
        self.weight.sequence_parallel = sequence_parallel
        self.bias = None

    def reset_parameters(self, **_: Any) -> None: ...

    def forward(self, x: Any) -> Any:
        return Norm.apply(x, self.weight, self.bias)


class LayerNorm(RMSNorm):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.bias = torch.nn.Parameter(torch.empty_like(self.weight))
        self.bias.sequence_parallel = self.weight.sequence_parallel
