"""Activations of the MLP. n is the inner width on this GPU; a gated one reads 2n columns and writes n."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.profile.kernels.case import KernelCase
from windtunnel.profile.kernels.pointwise import PointwiseKernel, rows_of
from windtunnel.profile.kernels.scope import Scope, shards


def cases(scope: Scope) -> Iterator[KernelCase]:
    """At every shard's inner width; gated ones for gated models, the others for the others."""
    gated: dict[int, tuple[float, str | None]] = {}
    plain: dict[int, tuple[float, str | None]] = {}
    for shard in shards(scope):
        chosen = gated if shard.model.gated else plain
        chosen.setdefault(shard.ffn, (shard.index + 0.8 * scope.tp.index(shard.tp), shard.model.name))
    yield from rows_of(scope, GATED, gated)
    yield from rows_of(scope, PLAIN, plain)


def swiglu(torch: Any) -> Callable[..., Any]:
    silu = torch.nn.functional.silu

    def gate(x: Any) -> Any:
        left, right = x.chunk(2, dim=-1)
        return silu(left) * right

    return gate


def gelu(torch: Any) -> Callable[..., Any]:
    function = torch.nn.functional.gelu
    return lambda x: function(x, approximate="tanh")


def squared_relu(torch: Any) -> Callable[..., Any]:
    return lambda x: torch.relu(x).square()


GATED = (PointwiseKernel("elementwise", "swiglu", swiglu, (2,), (3, 5)),)
PLAIN = (
    PointwiseKernel("elementwise", "gelu", gelu, (1,), (2, 3)),
    PointwiseKernel("elementwise", "squared_relu", squared_relu, (1,), (2, 3), 1.0),
)
