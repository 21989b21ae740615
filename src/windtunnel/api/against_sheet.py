"""What a captured job beside a job of our own graphs shows: what the framework does and our graph does not, and the reverse."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.api.against import Against, Beside
from windtunnel.base.units import show_size
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote

MOST_LINES = 24


def against_sheet(found: Against) -> Sheet:
    """Tables of calls, products and memory."""
    rows = [*found.calls, *found.products]
    equal = len(rows) - len(found.differences)
    headline = Sentence(
        "{equal} of {count} kinds of calls and products are equal in the captured job and in {job}",
        equal=equal, count=len(rows), job=say.clean(found.job.name),
    )  # fmt: skip
    about = "Memory is at the step's highest moment. What a captured tensor holds follows from when it is made and freed."
    return Sheet(
        "A captured job beside ours", headline,
        (
            Figure("equal", "equal kinds", float(equal), "", None, f"{equal} of {len(rows)}"),
            Figure("calls", "kinds of calls", float(len(found.calls))),
        ),
        (
            Section("Calls", (_table("calls", found.calls, "call"),)),
            Section("FLOPs", (_table("flops", found.products, "what", of_flops=True),)),
            Section("Shapes of products", (_table("shapes", found.shapes, "shape", of_flops=True),)),
            Section("Memory", (_table("memory", found.memory, "what", counts=False), Lines((about,), mood="soft"))),
        ),
        (headline,), titled=True,
    )  # fmt: skip


def _table(key: str, rows: Sequence[Beside], head: str, counts: bool = True, of_flops: bool = False) -> Table:
    several = len({row.rank for row in rows}) > 1
    columns = [
        *([Column("rank", True)] if several else []), Column(head, wraps=True), *([Column("count", True)] if counts else []),
        Column("captured", True), *([Column("count, ours", True)] if counts else []), Column("ours", True),
        Column("difference", True),
    ]  # fmt: skip

    def size(value: float) -> Cell:
        return Cell(f"{value / 1e12:.6g} TFLOP" if of_flops else show_size(value), value)

    cells = tuple(
        (
            *([Cell(str(row.rank), float(row.rank))] if several else []), Cell(quote(row.what)),
            *([Cell(f"{row.count:,}", float(row.count))] if counts else []), size(row.size),
            *([Cell(f"{row.our_count:,}", float(row.our_count))] if counts else []), size(row.our_size),
            Cell(f"{row.differs:+.2%}" if row.differs else "", row.differs),
        )
        for row in rows
    )  # fmt: skip
    return Table(key, tuple(columns), cells, most=MOST_LINES)
