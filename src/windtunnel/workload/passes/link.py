"""From rows by unit to one linear program with explicit waits."""

from __future__ import annotations

from windtunnel.workload.ops import Kind, Op

COMM = Kind.COMM  # read once: it is looked at for every row


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

    if units and units[0] and units[0][0].kind is COMM:
        rows.append(_joint(units[0][0]))
        waits.append(())
    for unit in units:
        base = len(rows)
        late: dict[int, int] = {}
        for row, op in enumerate(unit, base):
            explicit = [last if w < 0 else base + w for w in op.waits] if op.waits else []
            if op.kind is COMM:
                if op.blocking and not explicit:
                    explicit = [last]
                (pending if op.blocking else late)[int(op.stream)] = row
            else:
                if pending:
                    explicit += pending.values()
                    pending = {}
                last = row
            rows.append(op)
            waits.append(tuple(explicit[-2:]) if explicit else ())
        for stream, row in late.items():
            pending[stream] = max(row, pending.get(stream, -1))
    if pending:
        rows.append(_joint(rows[-1]))
        waits.append(tuple(pending.values())[-2:])
    return rows, waits


def _joint(beside: Op) -> Op:
    """A row of no work in the pass and module of `beside`."""
    return Op("wait", Kind.COPY, beside.phase, beside.module, launches=0, label=beside.label)
