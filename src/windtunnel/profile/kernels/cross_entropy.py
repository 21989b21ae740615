"""The loss over the vocabulary on this GPU: plain (logits to fp32, log-softmax, gather), and in chunks together with the head.

Plain, forward must read the logits and backward read and write them; eager kernels cross memory several times, compiled ones about
once. The chunked kernel never has all logits: for each 1024 tokens it computes logits, loss, and both gradients, all in forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope, shards

CHUNK = 1024


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Every shard's padded vocabulary."""
    seen: set[int] = set()
    dtype = scope.wide_dtypes[0]
    for shard in shards(scope):
        if shard.vocab in seen:
            continue
        seen.add(shard.vocab)
        for tokens in scope.tokens[:6]:
            rank = scope.rank(shard.index, shard.tp, tokens)
            for phase in ("forward", "backward"):
                yield plain_case(tokens, shard.vocab, phase, dtype, rank, shard.model.name)
            yield chunked_case(tokens, shard.vocab, shard.model.hidden, dtype, rank + 1.5, shard.model.name)


def plain_case(m: int, n: int, phase: str, dtype: str, rank: float, model: str | None = None) -> KernelCase:
    """m tokens, n classes."""

    def make(bench: Bench) -> Run:
        loss = bench.torch.nn.functional.cross_entropy
        logits, target = bench.randn(m, n, dtype=dtype), bench.integers(n, m)
        return (bench.forward if phase == "forward" else bench.backward)(lambda x: loss(x.float(), target), logits)

    return KernelCase(
        "cross_entropy",
        "cross_entropy",
        phase,
        make,
        dtype,
        model=model,
        m=m,
        n=n,
        bytes=float((1 if phase == "forward" else 2) * WIDTH[dtype] * m * n),
        rank=rank,
        modes=("compile", "cuda_graph"),
    )


def chunked_case(m: int, n: int, k: int, dtype: str, rank: float, model: str | None = None) -> KernelCase:
    """Head and loss, with the gradients of hidden state and weight: three products of m x n x k."""

    def make(bench: Bench) -> Run:
        torch = bench.torch
        hidden, weight, target = bench.randn(m, k, dtype=dtype), bench.randn(n, k, dtype=dtype, scale=0.02), bench.integers(n, m)
        return bench.forward(lambda: chunked_loss(torch, hidden, weight, target))

    width = WIDTH[dtype]
    return KernelCase(
        "cross_entropy",
        "chunked_linear_cross_entropy",
        "forward",
        make,
        dtype,
        model=model,
        m=m,
        n=n,
        k=k,
        flops=6.0 * m * n * k,
        bytes=float(2 * width * (m * k + n * k)),
        rank=rank,
    )


def chunked_loss(torch: Any, hidden: Any, weight: Any, target: Any) -> tuple[Any, Any, Any]:
    """Mean loss and its gradients: (m,k), (n,k), (m) -> scalar, (m,k), (n,k) in fp32."""
    total = hidden.new_zeros((), dtype=torch.float32)
    by_hidden = torch.empty_like(hidden)
    by_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
    tokens = hidden.shape[0]
    for begin in range(0, tokens, CHUNK):
        part, targets = hidden[begin : begin + CHUNK], target[begin : begin + CHUNK]
        logits = (part @ weight.t()).float()
        log = torch.log_softmax(logits, dim=-1)
        total -= log.gather(1, targets[:, None]).sum()
        slope = log.exp_()
        slope.scatter_add_(1, targets[:, None], slope.new_full((len(targets), 1), -1.0))
        slope = slope.div_(tokens).to(hidden.dtype)
        by_hidden[begin : begin + CHUNK] = slope @ weight
        by_weight += slope.t() @ part
    return total / tokens, by_hidden, by_weight
