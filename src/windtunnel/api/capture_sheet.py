"""What `capture` shows: the step, what the ranks did in it, the memory that they held, and values that a rule answered."""

from __future__ import annotations

from windtunnel.api.capture import Captured, CapturedMoments
from windtunnel.api.memory import OF_RANK, over_time_picture
from windtunnel.base.units import show_size
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.memory.over_time import PARTS
from windtunnel.replay.sheet import replay_sheet
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Picture, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote

MOST_OPERATORS, MOST_LINES = 60, 12


def capture_sheet(captured: Captured) -> Sheet:
    """What `capture` shows."""
    ranks = [peak.rank for peak in captured.memory]
    template = "A step takes {seconds} on {world} GPUs; {ranks} ran here"
    headline = Sentence(template, seconds=say.seconds(captured.seconds), world=f"{captured.world:,}", ranks=format_ranks(ranks))
    most = max(captured.memory, key=lambda peak: peak.reserved)
    kernels = sum(captured.operators.values())
    replayed = replay_sheet(captured.replayed)
    return Sheet(
        "A captured job", headline,
        (
            Figure("step_s", "a step", captured.seconds, "s"),
            Figure("kernels", "kernels of a rank", kernels, "", None, f"{kernels:,}"),
            Figure("allocated_bytes", "allocated at the peak", most.allocated, "B", None, show_size(most.allocated)),
            Figure("reserved_bytes", "reserved at the peak", most.reserved, "B", None, show_size(most.reserved)),
        ),
        (
            Section("Calls of a step", (_calls(captured),) if captured.calls else ()),
            Section("Memory", (_memory(captured),)),
            Section("Values that a rule answered", (_values(captured),) if captured.values else ()),
            Section("Operators of a step", (_operators(captured),)),
            *replayed.sections[1:],
        ),
        (headline,), titled=True,
    )  # fmt: skip


def memory_of_capture_sheet(captured: Captured) -> Sheet:
    """What `memory` shows of a captured job."""
    most = max(captured.memory, key=lambda peak: peak.reserved)
    headline = Sentence(
        "{allocated} allocated at the peak, {reserved} reserved, on rank {rank} of {world}", allocated=show_size(most.allocated),
        reserved=show_size(most.reserved), rank=most.rank, world=f"{captured.world:,}",
    )  # fmt: skip
    fullest = next(moments for moments in captured.moments if moments.rank == most.rank)
    capacity = float(captured.cluster.gpu.memory)
    fits = Sentence("fits") if most.reserved <= capacity else Sentence("does not fit")
    return Sheet(
        "Memory of a captured job", headline,
        (
            Figure("reserved_bytes", "reserved at the peak", most.reserved, "B", None, show_size(most.reserved)),
            Figure("capacity_bytes", "of", capacity, "B", None, show_size(capacity)),
            Figure("fits", "memory", float(most.reserved <= capacity), "", None, fits),
        ),
        (
            Section("Memory", (_memory(captured),)),
            Section("Highest moment of the step", (_contents(captured), _modules(fullest))),
            Section("Memory over one step", (memory_picture(captured),)),
        ),
        (headline,), titled=True,
    )  # fmt: skip


def memory_picture(captured: Captured) -> Picture:
    """Memory of each captured rank over its step."""
    return over_time_picture([whole.moments for whole in captured.moments], captured.folder.name, OF_RANK)


def _contents(captured: Captured) -> Table:
    """What each rank holds at the highest moment of its step."""
    rows = []
    for moments in (whole.moments for whole in captured.moments):
        highest = int(moments.allocated.argmax())
        sizes = [float(moments.allocated[highest]), *map(float, moments.parts[highest])]
        after = float(moments.time[highest])
        rows.append((Cell(str(moments.stage)), Cell(say.seconds(after), after), *(Cell(show_size(size), size) for size in sizes)))
    heads = ("after", "tensors", *PARTS)
    return Table("contents", (Column("rank", True), *(Column(head, True) for head in heads)), tuple(rows))


def _modules(moments: CapturedMoments) -> Table:
    rows = tuple(
        (
            Cell(quote(held.module or "-")), Cell(held.content), Cell(f"{held.tensors:,}", float(held.tensors)),
            Cell(show_size(held.bytes), float(held.bytes)),
        )
        for held in moments.highest[:MOST_OPERATORS]
    )  # fmt: skip
    columns = (Column("module", wraps=True), Column("content"), Column("tensors", True), Column("bytes", True))
    return Table("modules", columns, rows, Sentence("By module, rank {rank}", rank=moments.rank), most=MOST_LINES)


def _calls(captured: Captured) -> Table:
    rows = tuple(
        (
            Cell(calls.op), Cell(f"{len(calls.ranks):,}", float(len(calls.ranks))),
            Cell(quote(calls.group.lower().replace("_", " ") or format_ranks(calls.ranks))),
            Cell(f"{calls.count:,}", float(calls.count)), Cell(show_size(calls.bytes), float(calls.bytes)),
        )
        for calls in captured.calls
    )  # fmt: skip
    columns = (Column("call"), Column("ranks", True), Column("group", wraps=True), Column("count", True), Column("bytes", True))
    return Table("calls", columns, rows, most=MOST_LINES)


def _memory(captured: Captured) -> Table:
    rows = tuple(
        (
            Cell(str(peak.rank), float(peak.rank)),
            *(Cell(show_size(size), float(size)) for size in (peak.tensors, peak.allocated, peak.reserved)),
        )
        for peak in captured.memory
    )  # fmt: skip
    return Table("memory", (Column("rank", True), *(Column(head, True) for head in ("tensors", "allocated", "reserved"))), rows)


def _values(captured: Captured) -> Table:
    rows = tuple(
        (Cell(value.rule), Cell(quote(value.site)), Cell(f"{value.count:,}", float(value.count))) for value in captured.values
    )
    return Table("values", (Column("taken as"), Column("asked for at", wraps=True), Column("count", True)), rows, most=MOST_LINES)


def _operators(captured: Captured) -> Table:
    shown = list(captured.operators.items())[:MOST_OPERATORS]
    rows = tuple((Cell(quote(name)), Cell(f"{count:,}", float(count))) for name, count in shown)
    return Table("operators", (Column("operator"), Column("kernels", True)), rows, most=MOST_LINES)
