"""Fused attention, forward and backward: PyTorch's backends and the flash_attn packages where they can be imported.

FLOP: 2 (k + v) for each visible (query, key) pair forward, 2.5 times that backward (five products for two, one of them a
recomputation). Bytes: queries, keys, values and output once; backward 2.5 times that, as in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple

from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run, Unavailable
from windtunnel.profile.kernels.scope import Scope, shards

BACKENDS = {
    "sdpa_cudnn": ("cudnn", "CUDNN_ATTENTION", 0.2),
    "sdpa_flash": ("fa2", "FLASH_ATTENTION", 0.0),
    "sdpa_efficient": ("cutlass", "EFFICIENT_ATTENTION", 3.0),
    "sdpa_math": ("aten", "MATH", 4.0),
}
"""Name of a row -> (library, PyTorch's SDPBackend, cost of the rank)."""

PACKAGES = {"flash_attn_3": ("fa3", "flash_attn_interface", 0.1), "flash_attn_2": ("fa2", "flash_attn", 0.5)}
"""Name of a row -> (library, module whose `flash_attn_func` it is, cost of the rank)."""

WINDOWED = "flash_window"
WINDOWS = (4096, 1024, 512, 2048)
TOKENS = 8192
"""Tokens in a launch, over as many sequences as that makes; a longer sequence is alone."""

LONGEST_MATH = 4096


class AttentionHeads(NamedTuple):
    """Attention on one GPU: query heads, key/value heads, head sizes."""

    queries: int
    groups: int
    k: int
    v: int


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Every distinct attention of the shards at the scope's sequences: causal, then whole, windowed, latent (k 192, v 128)."""
    shapes_of_heads: dict[AttentionHeads, tuple[int, int, str]] = {}
    for shard in shards(scope):
        model = shard.model
        size = model.dim_per_head
        shapes_of_heads.setdefault(AttentionHeads(shard.heads, shard.groups, size, size), (shard.index, shard.tp, model.name))
    if scope.variants:
        shapes_of_heads.setdefault(AttentionHeads(16, 16, 192, 128), (5, 8, "deepseek-v3"))
    for heads, (index, tp, who) in shapes_of_heads.items():
        for seq in scope.sequences:
            base = scope.rank(index, tp, min(seq, 8192)) + 0.9 * scope.sequences.index(seq)
            for causal in (True, False) if seq <= 8192 else (True,):
                yield from _shape(scope, heads, seq, causal, None, base + (0.0 if causal else 2.5), who)
            for at, window in enumerate(WINDOWS):
                if window < seq and scope.cuda and heads.k == heads.v:
                    yield from _shape(scope, heads, seq, True, window, base + 2.0 + 0.5 * at, who)


def _shape(
    scope: Scope, heads: AttentionHeads, seq: int, causal: bool, window: int | None, rank: float, model: str
) -> Iterator[KernelCase]:
    names = [WINDOWED] if window else [*BACKENDS, *PACKAGES]
    for name in names:
        if name == "sdpa_math" and seq > LONGEST_MATH:
            continue
        library, _, more = ("fa2", "", 0.0) if name == WINDOWED else {**BACKENDS, **PACKAGES}[name]
        if not scope.cuda:
            if name not in ("sdpa_flash", "sdpa_math"):
                continue
            library = "aten" if name == "sdpa_flash" else "aten_math"
        for phase, again in (("forward", 0.0), ("backward", 0.1)):
            yield case(name, library, phase, heads, seq, causal, window, scope.wide_dtypes[0], rank + more + again, model)


def case(
    name: str,
    library: str,
    phase: str,
    heads: AttentionHeads,
    seq: int,
    causal: bool,
    window: int | None,
    dtype: str,
    rank: float,
    model: str | None = None,
    sequences: int | None = None,
) -> KernelCase:
    """One launch over `sequences`; default: as many as make `TOKENS` tokens, at least one."""
    sequences = sequences or max(1, TOKENS // seq)
    pairs = visible_pairs(seq, causal, window)
    flops = 2.0 * (heads.k + heads.v) * sequences * heads.queries * pairs
    moved = WIDTH[dtype] * sequences * seq * (heads.k + heads.v) * (heads.queries + heads.groups)
    times = 2.5 if phase == "backward" else 1.0

    def make(bench: Bench) -> Run:
        shape = [
            (sequences, seq, count, size)
            for count, size in ((heads.queries, heads.k), (heads.groups, heads.k), (heads.groups, heads.v))
        ]
        tensors = [bench.randn(*size, dtype=dtype) for size in shape]
        function = _function(bench, name, causal, window)
        try:
            return (bench.forward if phase == "forward" else bench.backward)(function, *tensors)
        except (RuntimeError, TypeError) as error:
            if bench.device.out_of_memory(error):
                raise
            raise Unavailable(f"{name} with heads of {heads.k} and {heads.v}") from error

    return KernelCase(
        "attention",
        name,
        phase,
        make,
        dtype,
        library=library,
        model=model,
        batch=sequences * heads.queries,
        m=seq,
        n=seq,
        k=heads.k,
        v=heads.v if heads.v != heads.k else None,
        heads_per_kv=heads.queries // heads.groups,
        causal=causal,
        window=window,
        flops=times * flops,
        bytes=times * moved,
        rank=rank,
        around=_backend_context(name),
    )


def visible_pairs(seq: int, causal: bool, window: int | None = None) -> float:
    """(query, key) pairs of one head over a square of `seq`."""
    if not causal:
        return float(seq) * seq
    most = min(seq, window or seq)
    return most * (most + 1) / 2 + (seq - most) * float(most)


def _function(bench: Bench, name: str, causal: bool, window: int | None) -> Any:
    """(queries, keys, values), each (sequences, tokens, heads, size) -> output."""
    torch = bench.torch
    if name == WINDOWED:
        keys_before = (window or 0) - 1  # keys before the query's own

        def windowed_attention(q: Any, k: Any, v: Any) -> Any:
            return torch.ops.aten._flash_attention_forward(
                q, k, v, None, None, q.shape[1], k.shape[1], 0.0, causal, False, window_size_left=keys_before, window_size_right=0
            )[0]

        return windowed_attention
    if name in PACKAGES:
        return _package(PACKAGES[name][1], causal)
    attention = torch.nn.functional.scaled_dot_product_attention

    def fused_attention(q: Any, k: Any, v: Any) -> Any:
        return attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal, enable_gqa=q.shape[2] != k.shape[2]
        )

    return fused_attention


def _package(module: str, causal: bool) -> Any:
    try:
        function = import_module(module).flash_attn_func
    except (ImportError, OSError, AttributeError) as error:
        raise Unavailable(f"the package {module}") from error

    def packaged_attention(q: Any, k: Any, v: Any) -> Any:
        result = function(q, k, v, causal=causal)
        return result[0] if isinstance(result, tuple) else result

    return packaged_attention


def _backend_context(name: str) -> Any:
    if name not in BACKENDS:
        return None

    def only(torch: Any) -> AbstractContextManager[object]:
        module = import_module("torch.nn.attention")
        context: AbstractContextManager[object] = module.sdpa_kernel([getattr(module.SDPBackend, BACKENDS[name][1])])
        return context

    return only
