"""From rows by unit to one linear program with explicit waits."""

from __future__ import annotations

from windtunnel.workload.ops import Kind, Op


def link(units: list[list[Op]]) -> tuple[list[Op], list[tuple[int, ...]]]:
    """Rows in order, and for each the earlier rows that it waits for; at most two each.

    A blocking communication row waits for the last computation, and the next computation waits for it. The others wait for the rows
    in `waits`, and the first computation after their unit waits for them. A program begins and ends with computation, if necessary
    with a row that only waits. So programs can be chained, and a wait for another stage is never booked under a collective.
    """
    rows: list[Op] = []
    waits: list[tuple[int, ...]] = []
    last = 0
    pending: dict[int, int] = {}  # stream -> latest communication row that the next computation waits for

    def append(op: Op, awaited: list[int]) -> None:
        rows.append(op)
        waits.append(tuple(awaited[-2:]))

    if units and units[0] and units[0][0].kind is Kind.COMM:
        append(_joint(units[0][0]), [])
    for unit in units:
        base = len(rows)
        late: dict[int, int] = {}
        for op in unit:
            explicit = [last if w < 0 else base + w for w in op.waits]
            if op.kind is Kind.COMM:
                if op.blocking and not explicit:
                    explicit = [last]
                (pending if op.blocking else late)[int(op.stream)] = len(rows)
            else:
                explicit += pending.values()
                pending = {}
                last = len(rows)
            append(op, explicit)
        for stream, row in late.items():
            pending[stream] = max(row, pending.get(stream, -1))
    if pending:
        append(_joint(rows[-1]), list(pending.values()))
    return rows, waits


def _joint(beside: Op) -> Op:
    """A row of no work in the pass and module of `beside`."""
    return Op("wait", Kind.COPY, beside.phase, beside.module, launches=0, label=beside.label)
