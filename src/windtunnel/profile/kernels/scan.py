"""The stages of recurrent mixers between their products, as PyTorch runs them without kernels of their own: convolutions, norms,
decays, recurrences in chunks.

A row is all operators of one stage of a mixer (`modules.recurrent`), run on the tensors that it has there: slices of a projection's
output and transposed ones take longer than tensors of their own. Sizes and bytes are those of the graph's row (workload/mixers), to
which a fitted curve is applied; of a recurrence, batch = sequences x heads, m tokens, n the width of values, k of states. On a GPU
jobs run Triton kernels of packages in place of this, which are not measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from windtunnel.profile.case import CHUNK, Case
from windtunnel.profile.kernels.case import WIDTH, Bench, KernelCase, Run
from windtunnel.profile.kernels.scope import Scope, recurrences_of


class StageRow(NamedTuple):
    """A row: bytes a token forward and backward; batch, m, n and k."""

    op: str
    name: str
    moved: tuple[float, float]
    sizes: tuple[int | None, int | None, int | None, int | None]


def cases(scope: Scope) -> Iterator[KernelCase]:
    """Stages of every model of the scope that has a recurrence, on a CPU."""
    if scope.cuda:
        return
    for index, model in enumerate(scope.models):
        for seq in scope.sequences:
            yield from recurrences(Case(model, seq, dtype=scope.wide_dtypes[0]), scope.rank(index, 1, seq))


def recurrences(case: Case, rank: float = 0.0) -> Iterator[KernelCase]:
    """The stages of the recurrent mixers of a case's layers, both passes."""
    for recurrence in sorted(recurrences_of(case.model)):
        stages = _state_space(case) if recurrence == "state_space_scan" else _delta(case, recurrence)
        for stage in stages:
            for way, phase in enumerate(("forward", "backward")):
                batch, m, n, k = stage.sizes
                yield KernelCase(
                    stage.op,
                    stage.name,
                    phase,
                    _make(case, recurrence, stage.name, phase),
                    case.dtype,
                    batch=batch,
                    m=m,
                    n=n,
                    k=k,
                    bytes=stage.moved[way] * case.tokens,
                    rank=rank,
                    modes=("compile",),
                )


def _state_space(case: Case) -> list[StageRow]:
    model, width = case.model, WIDTH[case.dtype]
    heads, groups = (model.ssm_heads or 0) // case.tp, max(1, model.ssm_groups // case.tp)
    p, n, chunk = model.ssm_head_dim, model.ssm_state, min(model.ssm_chunk, case.seq)
    rows, matrices, states = heads * p * width, groups * n * width, 4.0 * heads * p * n / chunk
    moved = 3 * rows + 4 * matrices + 4 * states, 9 * rows + 12 * matrices + 9 * states
    return [
        _convolution(case, heads * p + 2 * groups * n),
        StageRow("scan", "state_space_scan", moved, (case.micro_batch * heads, case.seq, p, n)),
        _norm(case, "gated_norm", heads * p, heads * p // groups, (3, 6)),
    ]


def _delta(case: Case, name: str) -> list[StageRow]:
    model, width = case.model, WIDTH[case.dtype]
    heads, k, v = (model.linear_heads or 0) // case.tp, model.linear_key_dim, model.linear_value_dim
    keys, values = model.linear_keys // case.tp, model.linear_values // case.tp
    one, state = width * (2.0 * k + 2.0 * v), width * k * v / CHUNK
    moved = heads * (2.5 * one + 2.0 * state), heads * (6.0 * one + 6.0 * state)
    decays = heads + (keys if model.linear_decay == "channel" else heads)
    return [
        _convolution(case, 2 * keys + values),
        _norm(case, "query_key_norm", 2 * keys, k, (2, 3)),
        StageRow("elementwise", "decay", (3.0 * width * decays, 4.0 * width * decays), (None, case.tokens, decays, None)),
        StageRow("scan", name, moved, (case.micro_batch * heads, case.seq, v, k)),
        _norm(case, "gated_norm", values, v, (3, 6)),
    ]


def _convolution(case: Case, channels: int) -> StageRow:
    one = float(WIDTH[case.dtype] * channels)
    return StageRow("elementwise", "short_convolution", (2 * one, 3 * one), (None, case.tokens, channels, None))


def _norm(case: Case, name: str, columns: int, width: int, times: tuple[int, int]) -> StageRow:
    """A norm of `columns` numbers a token in groups of `width`; `times`: how often they cross memory in each pass."""
    one = float(WIDTH[case.dtype] * columns)
    return StageRow("norm", name, (times[0] * one, times[1] * one), (None, case.tokens * columns // width, width, None))


def _make(case: Case, recurrence: str, name: str, phase: str) -> Callable[[Bench], Run]:
    def make(bench: Bench) -> Run:
        from windtunnel.profile.modules.layer import MIXER_MODULES

        mixer: Any = MIXER_MODULES[recurrence](case).to(bench.device.place, bench.device.dtype(case.dtype))
        kept: dict[str, Any] = {}

        def stage(name: str, function: Callable[..., Any], *inputs: Any) -> Any:
            kept[name] = function, inputs
            return function(*inputs)

        mixer.stage = stage
        with bench.torch.no_grad():
            mixer(bench.randn(case.micro_batch, case.seq, case.model.hidden, dtype=case.dtype))
        function, inputs = kept[name]
        inputs = [one.detach() for one in inputs]
        if phase == "forward":
            return bench.training(function, *inputs)
        return bench.backward(function, *inputs, weights=tuple(mixer.parameters()))

    return make
