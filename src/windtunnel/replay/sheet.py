"""What a replayed graph shows: when ranks end, where their time went, and the chain that set the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windtunnel.replay.result import ReplayResult
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Bar, Bars, Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.colours import BLUE, COLOURS
from windtunnel.sheet.sentence import Sentence, quote

LISTED, MOST_RANKS = 8, 400
"""Parts of the critical chain in the terminal, and ranks in a table."""


def replay_sheet(result: ReplayResult) -> Sheet:
    """What `replay` shows."""
    table: dict[str, Any] = result.as_dict()
    ends: list[float] = table["rank_end_s"]
    slowest = table["rank"][ends.index(max(ends))] if ends else 0
    template = "{end} s, set by rank {rank} of {ranks} ({network})"
    headline = Sentence(template, end=f"{result.end:.6g}", rank=slowest, ranks=table["ranks"], network=result.network)
    times: dict[str, list[float]] = {"end": ends, **table["busy_s"], "exposed communication": table["exposed_communication_s"]}
    chain = [
        quote(f"  {part['seconds']:.6g} s  {part['count']} x {part['name'][:80]} ({part['kind']})")
        for part in table["critical"][:LISTED]
    ]
    spread = _spread(times)
    return Sheet(
        "A replayed graph", headline, _figures(result, ends, times),
        (
            Section("", (Table("spread_told", spread.columns, spread.rows, brief=True),)),
            Section("", (Lines(("critical chain", *chain), brief=True),)),
            Section("The critical chain", _chain(result) if table["critical"] else ()),
            Section("Seconds of ranks", (spread, *_ranks(table["rank"], times))),
            Section("Notes", _notes("assumed", result.assumed) + _notes("never ended", result.stuck)),
        ),
        (headline,), titled=True,
    )  # fmt: skip


def _figures(result: ReplayResult, ends: list[float], times: dict[str, list[float]]) -> tuple[Figure, ...]:
    exposed = times["exposed communication"]
    return (
        Figure("end_s", "the last task ends", result.end, "s"),
        Figure("tasks", "tasks", len(result.graph), "", None, f"{len(result.graph):,}"),
        Figure("ranks", "ranks", result.graph.ranks, "", None, f"{result.graph.ranks:,}"),
        Figure("exposed_communication_s", "exposed communication, mean", sum(exposed) / max(len(exposed), 1), "s"),
    )


def _spread(times: dict[str, list[float]]) -> Table:
    rows = tuple(
        (Cell(Sentence(name)), *(Cell(f"{value:.6g}", value) for value in (min(values), sum(values) / len(values), max(values))))
        for name, values in times.items() if values
    )  # fmt: skip
    return Table("spread", (Column("seconds"), *(Column(head, True) for head in ("least", "mean", "most"))), rows, detail=True)


def _chain(result: ReplayResult) -> tuple[Bars, Table]:
    """What set the end, by the names of tasks."""
    kinds = list(dict.fromkeys(part.kind for part in result.critical))
    colours = {kind: COLOURS[number % len(COLOURS)] for number, kind in enumerate(kinds)}
    end, chain = result.end or 1.0, result.critical
    bars = tuple(
        Bar(quote(part.name[:60]), part.seconds, part.seconds / end, colours.get(part.kind, BLUE)) for part in chain[:LISTED]
    )
    rows = []
    for part in chain:
        time, count = Cell(say.seconds(part.seconds), part.seconds), Cell(f"{part.count:,}", float(part.count))
        rows.append((Cell(part.name), Cell(part.kind), time, count))
    columns = (Column("task"), Column("kind"), Column("time", True), Column("count", True))
    return Bars(bars, "s", detail=True), Table("chain", columns, tuple(rows), detail=True)


def _ranks(numbers: Sequence[int], times: dict[str, list[float]]) -> tuple[Table, ...]:
    shown = {name: values for name, values in times.items() if values}
    rows = tuple(
        (Cell(str(number), float(number)), *(Cell(say.seconds(values[place]), values[place]) for values in shown.values()))
        for place, number in enumerate(numbers[:MOST_RANKS])
    )
    columns = (Column("rank", True), *(Column(Sentence(name), True) for name in shown))
    return (Table("ranks", columns, rows, detail=True),) if rows else ()


def _notes(what: str, lines: Sequence[str]) -> tuple[Lines, ...]:
    return (Lines(tuple(map(quote, lines)), listed=True, title=Sentence(what), detail=True),) if lines else ()


def ends_sheet(
    title: str, key: str, unit: str, ends: Sequence[tuple[int, Sequence[float]]], heads: Sequence[str], lines: Sequence[str]
) -> Sheet:
    """What a run by the rules of another simulator shows. `key`: of the ends in JSON; `ends`: of each rank, values of `heads` in
    `unit`; `lines`: in the terminal, as that simulator prints them."""
    rows = tuple((Cell(str(rank), float(rank)), *(Cell(f"{value:,.0f}", value) for value in values)) for rank, values in ends)
    columns = (Column("rank", True), *(Column(head, True) for head in heads))
    most = max((values[0] for _, values in ends), default=0.0)
    figure = Figure(key, "the last rank ends", most, unit, None, quote(f"{most:,.0f} {unit}"))
    return Sheet(
        title, "", (figure,),
        (
            Section("", (Lines(tuple(map(quote, lines)), mood="code", brief=True),) if lines else ()),
            Section("Ranks", (Table("ranks", columns, rows, detail=True),)),
        ),
        titled=True,
    )  # fmt: skip
