"""What a kept run's twin shows: the ETTR that its own rates predict, beside what was measured, and where the time goes."""

from __future__ import annotations

from windtunnel.goodput.measured import FleetRun, Twin
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote

PARTS = {
    "useful": "training that counts",
    "detect": "until the fault was detected",
    "diagnose": "self-tests and the decision",
    "wait": "waiting for a node",
    "repair": "waiting for a node",
    "init": "starting processes and groups",
    "load": "reading the checkpoint",
    "replay": "repeated steps",
    "save": "saves that hold training up",
    "drag": "steps beside a checkpoint's writing",
    "slow": "steps beside slow nodes",
}
"""Shares of the wall time, in the order of a recovery."""
NOTABLE = 0.01
"""Of ETTR, that one incident moves."""


def twin_sheet(found: Twin, run: FleetRun | None = None) -> Sheet:
    """What `fleet replay` shows. `run`: what was measured, None for a prediction alone."""
    figures = [Figure("ettr_predicted", "ETTR predicted", found.predicted, "%", None, say.percent(found.predicted))]
    if run is not None:
        figures.append(Figure("ettr_measured", "ETTR measured", run.ettr, "%", None, ettr_text(run)))
    figures.append(Figure("mtbf_s", "a fault every", found.mtbf, "s"))
    figures.append(Figure("best_interval_s", "best time between checkpoints", found.best.best, "s"))
    lines, table = tuple(twin_lines(found, run)), shares_table(found, run)
    return Sheet(
        "A run and what its own faults predict" if run is not None else "A run and what its faults predict", "", tuple(figures),
        (
            Section("", (Lines(lines, brief=True),)),
            Section("", (_brief(table),)),
            Section("What the rates predict", (Lines(lines, listed=True, detail=True),)),
            Section("Where the time goes", (table,)),
        ),
        titled=True,
    )  # fmt: skip


def _brief(table: Table) -> Table:
    return Table(f"{table.key}_told", table.columns, table.rows, brief=True)


def ettr_text(run: FleetRun) -> str:
    """`94.2 %`; `at most 94.2 %` where it is not known how many steps were repeated."""
    share = say.percent(run.ettr)
    return Sentence("at most {share}", share=share) if run.unknown_replays else share


def replay_notes(run: FleetRun) -> list[str]:
    """Sentences on repeated steps: attempts that began again at step 0, and incidents of which nothing is known."""
    lines: list[str] = [quote(f"{text[:1].upper()}{text[1:]}.") for text in run.began_again]
    if unknown := run.unknown_replays:
        numbers = f"{', '.join(map(str, unknown[:8]))}{', …' if len(unknown) > 8 else ''}"
        which = Sentence(f"incident{'s' if len(unknown) > 1 else ''} {{numbers}}", numbers=numbers)
        lines.append(
            Sentence(
                "How many steps were repeated after {which} is unknown: nothing tells what the script loaded. It can say so: "
                "windtunnel.fleet.report_load(step).",
                which=which,
            )
        )
    return lines


def twin_lines(found: Twin, run: FleetRun | None) -> list[str]:
    """What there is to say, a sentence a line. `run`: what was measured, None for a prediction alone."""
    best, every = found.best, found.conditions.interval or found.best.best
    rests = Sentence("the rates are stated, not measured")
    if found.counted:
        rests = Sentence("the rates come from {count} of them", count=f"{found.counted:,}")
    facts = {"share": say.percent(found.predicted), "low": say.percent(found.low), "high": say.percent(found.high)}
    first = Sentence("ETTR predicted {share}; 80 of 100 such runs lie between {low} and {high}.", **facts)
    if run is not None:
        template = "ETTR predicted {share}, measured {measured}; 80 of 100 such runs lie between {low} and {high}."
        first = Sentence(template, measured=ettr_text(run), **facts)
    lines: list[str] = [
        first,
        Sentence("A fault every {time}; {rests}.", time=say.seconds(found.mtbf), rests=rests),
        Sentence(
            "A checkpoint every {time} of training; the best is every {best} ({share}), within 1 % of it from {low} to {high}.",
            time=say.seconds(every), best=say.seconds(best.best), share=say.percent(best.goodput), low=say.seconds(best.flat[0]),
            high=say.seconds(best.flat[1]),
        ),
    ]  # fmt: skip
    if found.slowest is not None and abs(found.slowest[1] - found.predicted) >= NOTABLE:
        number, without = found.slowest
        others = "Much rests on incident {number}, the slowest: had it cost what the others of its class do, "
        template = others + "{share} would be predicted."
        lines.append(Sentence(template, number=number, share=say.percent(without)))
    lines += replay_notes(run) if run is not None else []
    if found.spares:
        choice = found.spares[0]
        template = "The best number of spares is {count}: {share} of faults find none."
        lines.append(Sentence(template, count=choice.spares, share=say.percent(choice.no_spare, 2)))
    return lines


def shares(found: Twin, run: FleetRun | None) -> list[tuple[str, float | None, float]]:
    """(what, measured, predicted) shares of the wall time, those that are nowhere above zero left out."""
    measured = run.parts if run is not None else {}
    sums: dict[str, tuple[float, float]] = {}
    for part, what in PARTS.items():
        before = sums.get(what, (0.0, 0.0))
        sums[what] = (before[0] + measured.get(part, 0.0), before[1] + found.parts.get(part, 0.0))
    return [(what, own if run is not None else None, other) for what, (own, other) in sums.items() if max(own, other) > 0.0]


def shares_table(found: Twin, run: FleetRun | None) -> Table:
    """The same as rows."""
    rows = tuple(
        (Cell(Sentence(what)), Cell("") if own is None else Cell(say.percent(own, 2), own), Cell(say.percent(other, 2), other))
        for what, own, other in shares(found, run)
    )
    columns = (Column("where the time goes"), Column("measured", True), Column("predicted", True))
    return Table("shares", columns, rows, detail=True)
