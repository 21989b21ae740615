"""Matrix products of a layer and of the head: forward, input gradient, weight gradient; batched products of unfused attention.

Weights lie as PyTorch's Linear has them, (n,k) row by row, so the three passes have the layouts of training. FLOP 2 batch m n k;
bytes of both operands and the result once, an accumulated result read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run, Unavailable, WarmRun
from windtunnel.profile.kernels.scope import Scope, Shard, shards

GRID = (8192, 4096, 16384, 2048, 1024, 5120, 6144, 7168, 3072, 12288)
"""Squares and near squares that belong to no model, so that a fit sees sizes between the models'."""

BATCHED = (4096, 2048, 8192)
"""Sequences of unfused attention."""


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Products of every shard, token count and format; then squares; then the batched products of unfused attention."""
    seen: set[tuple[object, ...]] = set()
    for shard in shards(scope):
        for at, (name, n, k) in enumerate(products(shard)):
            for tokens in scope.tokens:
                for dtype in scope.dtypes:
                    rank = scope.rank(shard.index, shard.tp, tokens, dtype, 0.1 * at)
                    for case in passes(scope, name, tokens, n, k, dtype, rank, shard.model.name):
                        same = (case.phase, dtype, case.m, case.n, case.k, case.accumulate)
                        if same not in seen:
                            seen.add(same)
                            yield case
    if scope.variants:
        for at, size in enumerate(GRID):
            for dtype in scope.dtypes:
                yield from passes(scope, "square", size, size, size, dtype, scope.rank(dtype=dtype, more=2.0 + 0.5 * at), None)
        for at, seq in enumerate(BATCHED):
            yield from batched_cases(scope, 16, seq, 128, 4.0 + at)


def products(shard: Shard) -> list[tuple[str, int, int]]:
    """(name, outputs, inputs) of the linear layers on one GPU."""
    model = shard.model
    query = shard.heads * model.dim_per_head
    return [
        ("mlp_up_proj", shard.ffn * (2 if model.gated else 1), model.hidden),
        ("mlp_down_proj", model.hidden, shard.ffn),
        ("attention_qkv", query + 2 * shard.groups * model.dim_per_head, model.hidden),
        ("attention_proj", model.hidden, query),
        *_recurrent_products(shard),
        ("lm_head", shard.vocab, model.hidden),
    ]


def _recurrent_products(shard: Shard) -> list[tuple[str, int, int]]:
    """The projections of recurrent mixers that the model has."""
    model, tp = shard.model, shard.tp
    made = []
    if "state_space_scan" in shard.recurrences:
        inner, heads = model.ssm_width // tp, (model.ssm_heads or 0) // tp
        wide = 2 * inner + 2 * max(1, model.ssm_groups // tp) * model.ssm_state + heads
        made += [("mamba_in_proj", wide, model.hidden), ("mamba_out_proj", model.hidden, inner)]
    keys, values, heads = model.linear_keys // tp, model.linear_values // tp, (model.linear_heads or 0) // tp
    if "delta_rule" in shard.recurrences:
        made.append(("linear_in_proj", 2 * keys + 2 * values + 2 * heads, model.hidden))
    if "channel_delta_rule" in shard.recurrences:
        narrow = model.linear_value_dim
        made += [("linear_in_proj", 2 * keys + values + heads, model.hidden), ("linear_gate_down", narrow, model.hidden)]
        made += [("linear_decay_up", keys, narrow), ("linear_gate_up", values, narrow)]
    if heads:
        made.append(("linear_out_proj", model.hidden, values))
    return made


def passes(
    scope: Scope, name: str, tokens: int, n: int, k: int, dtype: str, rank: float, model: str | None
) -> Iterator[KernelCase]:
    """Forward, dgrad, wgrad, and wgrad added to an fp32 gradient, of (tokens,k)@(k,n)."""
    shapes = {"forward": (tokens, n, k), "dgrad": (tokens, k, n), "wgrad": (n, k, tokens)}
    for phase, (rows, columns, inner) in shapes.items():
        cost = rank + 0.2 * (phase != "forward")
        for add in (False, True) if phase == "wgrad" and dtype in ("bf16", "fp16") and scope.cuda else (False,):
            yield product(scope, name, phase, rows, columns, inner, dtype, cost + 0.4 * add, model, add)


def product(
    scope: Scope,
    name: str,
    phase: str,
    m: int,
    n: int,
    k: int,
    dtype: str,
    rank: float,
    model: str | None,
    add: bool = False,
    batch: int = 1,
) -> KernelCase:
    """One product as it was executed: `batch` x (m,k)@(k,n)."""
    width = WIDTH[dtype]
    out = 4 if add else max(width, 2)

    def make(bench: Bench) -> Run:
        if dtype == "fp8":
            return _scaled_run(bench, phase, m, n, k)
        return _accumulating(bench, m, n, k, dtype) if add else _plain_run(bench, phase, batch, m, n, k, dtype)

    @contextmanager
    def set_precision(torch: Any) -> Iterator[None]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    return KernelCase(
        "gemm",
        name,
        phase,
        make,
        dtype,
        "fp32" if add else None,
        "eager",
        "cublas" if scope.cuda else "aten",
        model,
        batch,
        m,
        n,
        k,
        accumulate=add,
        flops=2.0 * batch * m * n * k,
        bytes=float(batch * (width * (m * k + k * n) + out * (2 if add else 1) * m * n)),
        rank=rank,
        modes=("cuda_graph",),
        around=set_precision if width == 4 else None,
    )


def batched_cases(scope: Scope, heads: int, seq: int, dim: int, rank: float) -> Iterator[KernelCase]:
    """Scores and context of unfused attention."""
    dtype, cost = scope.wide_dtypes[0], scope.rank(more=rank)
    yield product(scope, "attention_scores", "forward", seq, seq, dim, dtype, cost, None, batch=heads)
    yield product(scope, "attention_context", "forward", seq, dim, seq, dtype, cost, None, batch=heads)


def _plain_run(bench: Bench, phase: str, batch: int, m: int, n: int, k: int, dtype: str) -> Run:
    """Operands with the strides that the phase has in training: y = x W^T, dx = dy W, dW = dy^T x."""
    lead = (batch,) if batch > 1 else ()
    a = bench.randn(*lead, k, m, dtype=dtype).transpose(-1, -2) if phase == "wgrad" else bench.randn(*lead, m, k, dtype=dtype)
    b = bench.randn(*lead, n, k, dtype=dtype).transpose(-1, -2) if phase == "forward" else bench.randn(*lead, k, n, dtype=dtype)
    out = bench.torch.empty((*lead, m, n), dtype=a.dtype, device=a.device)
    torch = bench.torch
    return WarmRun(lambda: torch.matmul(a, b, out=out), (a,))


def _accumulating(bench: Bench, m: int, n: int, k: int, dtype: str) -> Run:
    """dW += dy^T x in one kernel, 16-bit operands and an fp32 sum."""
    torch = bench.torch
    a, b = bench.randn(k, m, dtype=dtype).t(), bench.randn(k, n, dtype=dtype)
    total = bench.randn(m, n, dtype="fp32")
    try:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    except (TypeError, RuntimeError) as error:
        if bench.device.out_of_memory(error):
            raise
        raise Unavailable("a product of 16-bit operands that adds to an fp32 result") from error
    return lambda: torch.addmm(total, a, b, out_dtype=torch.float32, out=total)


def _scaled_run(bench: Bench, phase: str, m: int, n: int, k: int) -> Run:
    """8-bit operands with one scale each, bf16 result. A gradient is e5m2 and sums in full precision; both operands lie along k, as
    the hardware wants them, so the transposes of a training step are kernels of their own (`quantise_fp8`)."""
    torch = bench.torch
    if not bench.device.cuda or not hasattr(torch, "_scaled_mm") or m % 16 or n % 16 or k % 16:
        raise Unavailable("an 8-bit product of this shape")
    a, b = bench.randn(m, k, dtype="fp8"), bench.randn(n, k, dtype="fp8").t()
    if phase != "forward":
        a = a.to(torch.bfloat16).to(torch.float8_e5m2)
    one = torch.ones((), dtype=torch.float32, device=bench.device.place)
    fast = phase == "forward"

    def run() -> object:
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)

    try:
        run()
    except RuntimeError as error:
        if bench.device.out_of_memory(error):
            raise
        raise Unavailable("8-bit products (compute capability 8.9 or later)") from error
    return run
