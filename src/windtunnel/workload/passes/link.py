"""From rows by unit to one linear program with explicit waits."""

from __future__ import annotations

from windtunnel.workload.ops import Kind, Op, Stream

BEFORE = -2
"""Wait for whatever ran last on the compute stream before this program."""


def link(units: list[list[Op]]) -> tuple[list[Op], list[tuple[int, ...]]]:
    """Rows in order, and for each the earlier rows (or `BEFORE`) whose end it awaits; at most two each.

    A blocking communication row waits for the last computation, and the next computation waits for it. The others wait for what they
    name, and the first computation after their unit waits for them.
    """
    rows: list[Op] = []
    waits: list[tuple[int, ...]] = []
    last = BEFORE
    pending: dict[int, int] = {}  # stream -> latest communication row that the next computation awaits
    for unit in units:
        base, late = len(rows), {}
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
            rows.append(op)
            waits.append(tuple(explicit[-2:]))
        for stream, row in late.items():
            pending[stream] = max(row, pending.get(stream, -1))
    if pending:
        rows.append(Op("wait", Kind.COPY, rows[-1].phase, rows[-1].module, launches=0, stream=Stream.COMPUTE))
        waits.append(tuple(pending.values())[-2:])
    return rows, waits
