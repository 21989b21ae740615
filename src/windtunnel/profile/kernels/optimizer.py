"""The update of n parameters that lie in tensors of a model's layer (`batch`: how many): AdamW and SGD, fused, foreach and a loop.

Bytes: gradient read, parameter and states read and written, each 4 B; foreach and the loop cross memory more often than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.profile.kernels.case import Bench, KernelCase, Run, Unavailable
from windtunnel.profile.kernels.gemm import products
from windtunnel.profile.kernels.scope import Scope, Shard, shards

WAYS = {"fused": 0.0, "foreach": 0.7, "loop": 2.0}
STATES = {"adamw": 2, "sgd": 0, "sgd_momentum": 1}
LAYERS = (2, 8)
MOST = 2**31


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Layers of every distinct shard."""
    seen: set[tuple[int, int]] = set()
    for shard in shards(scope):
        if (shard.model.hidden, shard.ffn) in seen:
            continue
        seen.add((shard.model.hidden, shard.ffn))
        for layers in LAYERS if scope.variants else LAYERS[:1]:
            sizes = tensors(shard) * layers
            if sum(sizes) > MOST:
                continue
            for at, name in enumerate(STATES):
                for way, more in WAYS.items():
                    yield case(name, way, sizes, scope.rank(shard.index, shard.tp, more=more + 1.5 * at), shard.model.name)


def tensors(shard: Shard) -> list[int]:
    """Elements of each weight of one layer on one GPU: its linear layers but for the head, and two norms."""
    return [n * k for name, n, k in products(shard) if name != "lm_head"] + [shard.model.hidden] * 2


def case(name: str, way: str, sizes: list[int], rank: float, model: str | None = None) -> KernelCase:
    """`sizes`: elements of each tensor."""
    n = sum(sizes)

    def make(bench: Bench) -> Run:
        torch = bench.torch
        parameters = [torch.nn.Parameter(bench.randn(size, dtype="fp32")) for size in sizes]
        for parameter in parameters:
            parameter.grad = bench.randn(parameter.numel(), dtype="fp32")
        options: dict[str, Any] = {"fused": way == "fused" or None, "foreach": way == "foreach"}
        if way == "fused":
            options.pop("foreach")
        try:
            optimizer = (
                torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, **options)
                if name == "adamw"
                else torch.optim.SGD(parameters, lr=1e-4, momentum=0.9 if name == "sgd_momentum" else 0.0, **options)
            )
            optimizer.step()
        except (RuntimeError, TypeError) as error:
            if bench.device.out_of_memory(error):
                raise
            raise Unavailable(f"{name}_{way}") from error
        return lambda: optimizer.step()

    return KernelCase(
        "optimizer",
        f"{name}_{way}",
        "optimizer",
        make,
        "fp32",
        model=model,
        batch=len(sizes),
        n=n,
        bytes=float(n * (12 + 8 * STATES[name])),
        rank=rank,
        modes=(),
    )
