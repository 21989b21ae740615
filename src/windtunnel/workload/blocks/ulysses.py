"""DeepSpeed-Ulysses (Jacobs et al. 2023, arXiv 2309.14509): all-to-alls give each rank a share of the heads of whole sequences.

Queries, keys and values are exchanged before the core, the context after it, and their gradients the other way. Each call sends a
packed copy, as Transformer Engine's flash_attn_a2a_communicate does; where chunks are balanced a second copy puts them in order.
"""

from __future__ import annotations

from windtunnel.workload.blocks.core import CoreHeads
from windtunnel.workload.blocks.ring import Rows, parts_of
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape


def swap_heads(tape: Tape, heads: CoreHeads, ranks: int, axis: Axis, core: Rows) -> Rows:
    """`core` on a share of the heads, between all-to-alls over `axis`."""
    queries = float(tape.tokens * heads.queries)
    keys = float(tape.tokens * heads.groups)
    three = (("query", queries * heads.dim), ("key", keys * heads.dim), ("value", keys * heads.value))
    context = (("context", queries * heads.value),)
    return (
        _add_exchanges(tape, Phase.FORWARD, "exchange", three, core[0], context, axis),
        _add_exchanges(tape, Phase.DGRAD, "gradient exchange", context, core[1], three, axis),
    )


def _add_exchanges(
    tape: Tape,
    phase: Phase,
    what: str,
    before: tuple[tuple[str, float], ...],
    core: list[Op],
    after: tuple[tuple[str, float], ...],
    axis: Axis,
) -> list[Op]:
    rows = _exchange(tape, phase, what, before, axis)
    rows += [op._replace(waits=tuple(w + len(rows) if w >= 0 else w for w in op.waits)) for op in core]
    start = len(rows)
    return rows + [
        op._replace(waits=tuple(w + start if w >= 0 else w for w in op.waits)) for op in _exchange(tape, phase, what, after, axis)
    ]


def _exchange(tape: Tape, phase: Phase, what: str, tensors: tuple[tuple[str, float], ...], axis: Axis) -> list[Op]:
    """Each tensor is packed, then sent while the next one is packed; the row after them waits for all."""
    rows: list[Op] = []

    def copy(name: str, elements: float, waits: tuple[int, ...]) -> Op:
        return tape.elementwise(name, phase, elements, 1, 1, kind=Kind.COPY)._replace(waits=waits)

    calls: list[int] = []
    for name, elements in tensors:
        rows.append(copy(f"{name} pack", elements, ()))
        rows.append(
            tape.comm(
                f"{name} {what}",
                phase,
                Comm.ALL_TO_ALL,
                axis,
                elements * tape.width,
                Stream.CP,
                blocking=False,
                waits=(len(rows) - 1,),
            )
        )
        calls.append(len(rows) - 1)
    if parts_of(tape.job.plan.cp_balance) == 2:
        rows += [copy(f"{name} chunks in order", elements, (call,)) for (name, elements), call in zip(tensors, calls, strict=True)]
    else:
        rows[calls[-1]] = rows[calls[-1]]._replace(blocking=True)
    return rows
