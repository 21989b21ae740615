"""From a block's units to the rows of its forward and backward pass, and from rows by unit to one linear program with explicit
waits.
"""

from __future__ import annotations

from windtunnel.workload.ops import Kind, Op
from windtunnel.workload.passes.recompute import parts_again, rows_again, until_last_saved
from windtunnel.workload.tape import Unit

Rows = list[list[Op]]
"""Rows grouped by unit: the end of a group waits for its asynchronous communication."""


def forward_rows(units: list[Unit]) -> Rows:
    """Rows of the forward pass, unit by unit."""
    return [u.forward for u in units if u.forward]


def backward_rows(
    units: list[Unit], recompute: str, modules: tuple[str, ...] = ("core_attn",), stops: bool = False
) -> Rows:  # fmt: skip
    """Rows of the backward pass under a recompute policy: recomputed rows first, then the units in reverse.

    Under selective recompute each of `modules` runs again just before the last unit that needs it. `stops`: what runs again ends
    with the last tensor that backward needs (`until_last_saved`).
    """
    if recompute == "none":
        return [u.backward for u in reversed(units) if u.backward]
    if recompute == "selective":
        rows: Rows = []
        core = [u for u in units if u.core and "core_attn" in modules]
        parts = parts_again(units, modules)
        for index, unit in reversed(list(enumerate(units))):
            for part in parts.get(index, ()):
                rows += rows_again(until_last_saved(part) if stops else part, recompute)
            if core and unit is core[-1]:
                rows += rows_again(core, recompute)
            if unit.backward:
                rows.append(unit.backward)
        return rows
    ahead = until_last_saved(units) if stops and recompute == "full" else units
    return rows_again(ahead, recompute) + [u.backward for u in reversed(units) if u.backward]


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
