"""Recurrences in chunks and the short convolutions before them, as PyTorch runs them without kernels of their own.

A row of a recurrence is all that its operators take: batch = sequences x heads, m tokens, n the width of values, k of states. Bytes
are those of the graph's row (workload/mixers), to which a fitted curve is applied. On a GPU jobs run Triton kernels of packages in
place of this, which are not measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.profile.case import CHUNK, STEP
from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope, recurrences_of
from windtunnel.spec import Model


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Recurrences of every model of the scope that has one, on a CPU."""
    if scope.cuda:
        return
    dtype = scope.wide_dtypes[0]
    for index, model in enumerate(scope.models):
        for seq in scope.sequences:
            yield from recurrences(model, 1, 1, seq, dtype, scope.rank(index, 1, seq))


def recurrences(model: Model, tp: int, sequences: int, seq: int, dtype: str, rank: float = 0.0) -> Iterator[KernelCase]:
    """The recurrences of a model's layers over `sequences` of `seq` tokens, and their convolutions, both passes."""
    scans = recurrences_of(model)
    if "state_space_scan" in scans:
        yield from _state_space(model, tp, sequences, seq, dtype, rank)
    if "delta_rule" in scans:
        yield from _delta(model, tp, sequences, seq, dtype, rank)


def _state_space(model: Model, tp: int, sequences: int, seq: int, dtype: str, rank: float) -> Iterator[KernelCase]:
    heads, groups = (model.ssm_heads or 0) // tp, max(1, model.ssm_groups // tp)
    p, n, chunk = model.ssm_head_dim, model.ssm_state, min(model.ssm_chunk, seq)

    def function(x: Any, step: Any, decay: Any, b: Any, c: Any, skip: Any) -> Any:
        from windtunnel.profile.modules.recurrent import state_space_scan

        return state_space_scan(x, step + STEP, decay, b, c, skip, chunk)

    shapes = ((sequences, seq, heads, p), (sequences, seq, heads), (heads,), *2 * ((sequences, seq, groups, n),), (heads,))
    width, tokens = WIDTH[dtype], sequences * seq
    rows, matrices, states = heads * p * width, groups * n * width, 4.0 * heads * p * n / chunk
    moved = 3 * rows + 4 * matrices + 4 * states, 9 * rows + 12 * matrices + 9 * states
    yield from _passes("scan", "state_space_scan", function, shapes, moved, tokens, (sequences * heads, seq, p, n), dtype, rank)
    channels = heads * p + 2 * groups * n
    yield from _convolution(channels, model.conv_width, True, sequences, seq, dtype, rank)


def _delta(model: Model, tp: int, sequences: int, seq: int, dtype: str, rank: float) -> Iterator[KernelCase]:
    heads, k, v = (model.linear_heads or 0) // tp, model.linear_key_dim, model.linear_value_dim
    keys = model.linear_keys // tp // k

    def function(q: Any, key: Any, value: Any, decay: Any, strength: Any) -> Any:
        from windtunnel.profile.modules.recurrent import delta_rule

        return delta_rule(q / k, key / k, value, -(decay + STEP).exp(), strength.sigmoid(), CHUNK)

    shapes = (*2 * ((sequences, seq, keys, k),), (sequences, seq, heads, v), *2 * ((sequences, seq, heads),))
    one, state = WIDTH[dtype] * (2.0 * k + 2.0 * v), WIDTH[dtype] * k * v / CHUNK
    moved = heads * (2.5 * one + 2.0 * state), heads * (6.0 * one + 6.0 * state)
    yield from _passes("scan", "delta_rule", function, shapes, moved, sequences * seq, (sequences * heads, seq, v, k), dtype, rank)
    channels = (2 * model.linear_keys + model.linear_values) // tp
    yield from _convolution(channels, model.conv_width, False, sequences, seq, dtype, rank)


def _convolution(channels: int, width: int, bias: bool, sequences: int, seq: int, dtype: str, rank: float) -> Iterator[KernelCase]:
    def function(x: Any, weight: Any, *biases: Any) -> Any:
        from torch.nn import functional

        out = functional.conv1d(x.transpose(1, 2), weight, *biases, padding=width - 1, groups=channels)
        return functional.silu(out[..., :seq]).transpose(1, 2)

    shapes = ((sequences, seq, channels), (channels, 1, width), *([(channels,)] if bias else []))
    moved = 2.0 * WIDTH[dtype] * channels, 3.0 * WIDTH[dtype] * channels
    sizes = (None, sequences * seq, channels, None)
    yield from _passes("elementwise", "short_convolution", function, shapes, moved, sequences * seq, sizes, dtype, rank)


def _passes(
    op: str, name: str, function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], moved: tuple[float, float], tokens: int,
    sizes: tuple[int | None, ...], dtype: str, rank: float,
) -> Iterator[KernelCase]:  # fmt: skip
    """Both passes of `function` over random tensors of `shapes`; `moved`: B a token; `sizes`: batch, m, n and k of the row."""
    batch, m, n, k = sizes
    for phase, each in zip(("forward", "backward"), moved, strict=True):

        def make(bench: Bench, phase: str = phase) -> Run:
            tensors = [bench.randn(*shape, dtype=dtype) for shape in shapes]
            return (bench.forward if phase == "forward" else bench.backward)(function, *tensors)

        yield KernelCase(
            op, name, phase, make, dtype, batch=batch, m=m, n=n, k=k, bytes=each * tokens, rank=rank, modes=("compile",)
        )
