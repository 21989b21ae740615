"""Layer norm and RMS norm over the hidden width. Forward reads and writes the rows once; backward reads two and writes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.profile.kernels.case import KernelCase
from windtunnel.profile.kernels.pointwise import PointwiseKernel, rows_of
from windtunnel.profile.kernels.scope import Scope


def cases(scope: Scope) -> Iterator[KernelCase]:
    """At every model's hidden width."""
    widths: dict[int, tuple[float, str | None]] = {}
    for index, model in enumerate(scope.models):
        widths.setdefault(model.hidden, (float(index), model.name))
    yield from rows_of(scope, KERNELS, widths)


def rms(torch: Any) -> Callable[..., Any]:
    norm = torch.nn.functional.rms_norm
    return lambda x, weight: norm(x, weight.shape, weight, 1e-5)


def rms_composed(torch: Any) -> Callable[..., Any]:
    """As modules that predate the operator write it: squares, mean and scale in fp32, a kernel each in eager mode."""

    def composed_norm(x: Any, weight: Any) -> Any:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    return composed_norm


def layer(torch: Any) -> Callable[..., Any]:
    norm = torch.nn.functional.layer_norm
    return lambda x, weight, bias: norm(x, weight.shape, weight, bias, 1e-5)


KERNELS = (
    PointwiseKernel("norm", "rms_norm", rms, (1, 0), (2, 3)),
    PointwiseKernel("norm", "layer_norm", layer, (1, 0, 0), (2, 3), 0.5),
    PointwiseKernel("norm", "rms_norm_composed", rms_composed, (1, 0), (2, 3), 1.5),
)
