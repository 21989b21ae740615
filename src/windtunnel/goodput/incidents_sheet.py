"""What a kept run's incidents show: a timeline, where each second went, and what every incident was and cost. What a kept run's
twin shows: the ETTR that its own rates predict, beside what was measured, and where the time goes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from windtunnel.goodput.measured import FleetRun, Twin
from windtunnel.records.incidents import Incident, replayed_seconds
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Bar, Bars, Block, Cell, Column, Figure, Lines, Picture, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, join, quote

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


PHASES = (
    ("detect", "detecting", "#b91c1c"), ("diagnose", "diagnosing", "#ea580c"), ("wait", "waiting for a node", "#a16207"),
    ("start", "starting", "#7c3aed"), ("load", "loading", "#0e7490"), ("replay", "repeating steps", "#64748b"),
)  # fmt: skip
"""Field of an incident's seconds, its word and its colour."""
TRAINS, OTHER = "#16a34a", "#64748b"
COLOURS = {
    "useful": TRAINS, "detect": PHASES[0][2], "diagnose": PHASES[1][2], "wait": PHASES[2][2], "repair": PHASES[2][2],
    "init": PHASES[3][2], "load": PHASES[4][2], "replay": PHASES[5][2], "save": "#2563eb",
}  # fmt: skip
MOST_LANES, LANE_INCIDENTS = 12, 12
"""Lines of the timeline at most, and incidents from which on it gets another."""


def incidents_sheet(
    name: str, incidents: Sequence[Incident], run: FleetRun | None, found: Twin | None = None, notes: Sequence[str] = ()
) -> Sheet:
    """What `fleet incidents` shows. `run`: None where no step's time is known; `found`: what the run's own laws predict, None
    without an incident that the run recovered from; `notes`: on what was lost."""
    count = say.count_words(len(incidents), "incident")
    line = count
    if run is not None:
        line = Sentence("{count} in {time}, ETTR {ettr}", count=count, time=say.seconds(run.wall), ettr=ettr_text(run))
    again = replay_notes(run) if run is not None else []
    told = _incident_rows(incidents, run) if incidents else ()
    first = Section("", (Lines((line, *map(quote, notes), *again), brief=True),))
    if run is None:
        return Sheet(name, "", (), (first, Section("", told), Section("Incidents", (Lines((line,), detail=True),))), titled=True)
    rows = (_table(run),) if incidents else (Lines(("None.",), detail=True),)
    predicted = () if found is None else (Lines(tuple(twin_lines(found, run)), listed=True, detail=True),)
    repeated = (Lines(tuple(again), listed=True, detail=True),) if found is None and again else ()
    return Sheet(
        name, "", _figures(run, found),
        (
            first,
            Section("", told),
            Section("The run", (_timeline(run),)),
            Section("Where the time went", _shares(run, found)),
            Section("What the run's own rates predict", predicted),
            Section("Repeated steps", repeated),
            Section("Incidents", rows),
        ),
        _subtitle(run), titled=True,
    )  # fmt: skip


def _incident_rows(incidents: Sequence[Incident], run: FleetRun | None) -> tuple[Block, ...]:
    """The incidents in the terminal."""
    rows = []
    for incident in incidents:
        again = say.seconds(replayed_seconds(incident, run.step)) if run is not None else str(incident.lost_steps or "")
        again = say.UNKNOWN if incident.is_replay_unknown else again
        why = run.story(incident) if run is not None else incident.evidence
        cost, where = say.seconds(incident.seconds.down), incident.node or ""
        cells = (str(incident.number), incident.what, where, incident.action, cost, again, incident.outcome, why)
        rows.append(tuple(Cell(say.clean(cell)) for cell in cells))
    heads = ("", "what", "where", "action", "no training", "repeating steps", "outcome", "why")
    return (Table("incidents_told", tuple(Column(head, wraps=bool(head)) for head in heads), tuple(rows), brief=True),)


def _figures(run: FleetRun, found: Twin | None) -> tuple[Figure, ...]:
    down = sum(incident.seconds.down for incident in run.counted_incidents)
    again = sum(replayed_seconds(incident, run.step) for incident in run.counted_incidents)
    costs = [incident.seconds.down + replayed_seconds(incident, run.step) for incident in run.incidents]
    repeated = Sentence("at least {time}", time=say.seconds(again)) if run.unknown_replays else say.seconds(again)
    return (
        Figure("ettr", "ETTR measured", run.ettr, "%", None, ettr_text(run)),
        Figure("parts.predicted", "ETTR predicted", None if found is None else found.predicted, "%", None,
               Sentence("unknown") if found is None else say.percent(found.predicted)),
        Figure("incidents", "incidents", len(run.incidents), "", None, f"{len(run.incidents):,}"),
        Figure("incidents.down_s", "without training", down, "s"),
        Figure("incidents.replay_s", "repeated steps", again, "s", None, quote(repeated) if not run.unknown_replays else repeated),
        Figure("incidents.most_s", "costliest incident", max(costs, default=None), "s", None, "" if costs else Sentence("none")),
    )  # fmt: skip


def _subtitle(run: FleetRun) -> tuple[str, ...]:
    begun = say.moment(run.began)
    facts = {"begun": begun, "time": say.seconds(run.wall), "step": say.seconds(run.step)}
    kinds = Counter(incident.what for incident in run.incidents).most_common()
    first = Sentence("Began {begun}, {time}, a step takes {step}", **facts)
    return (first, quote(", ".join(f"{count} {what}" for what, count in kinds))) if kinds else (first,)


def _timeline(run: FleetRun) -> Picture:
    """Lines of equal time with each incident's phases."""
    count = min(MOST_LANES, max(1, math.ceil(len(run.incidents) / LANE_INCIDENTS)))
    spans = []
    for incident in run.incidents:
        now = incident.began - run.began
        for field, word, colour in PHASES:
            took = replayed_seconds(incident, run.step) if field == "replay" else getattr(incident.seconds, field) or 0.0
            if took > 0.0:
                what = Sentence("{number}: {what}", number=incident.number, what=incident.what)
                if incident.node:
                    what = Sentence("{what} on {node}", what=what, node=incident.node)
                told = Sentence("{what}; {phase} {time}", what=what, phase=Sentence(word), time=say.seconds(took))
                spans.append((now, now + took, colour, told))
            now += took
    data = {
        "names": tuple(_clock(lane * run.wall / count) for lane in range(count)), "seconds": run.wall / count,
        "ground": (TRAINS, "training"), "spans": tuple(spans),
        "legend": (("training", TRAINS), *((word, colour) for _, word, colour in PHASES)),
    }  # fmt: skip
    return Picture("lanes", data, "The run with its incidents", detail=True)


def _clock(seconds: float) -> str:
    """`1:02:03` since the run began."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _shares(run: FleetRun, found: Twin | None) -> tuple[Block, ...]:
    """Bars of the measured shares; a table has the predicted ones beside them."""
    measured: dict[str, tuple[float, str]] = {}
    for part, what in PARTS.items():
        share = run.parts.get(part, 0.0)
        if share > 0.0:
            measured[what] = (measured.get(what, (0.0, ""))[0] + share, COLOURS.get(part, OTHER))
    bars = tuple(Bar(what, share * run.wall, share, colour) for what, (share, colour) in measured.items())
    return (Bars(bars, "s", detail=True), *((shares_table(found, run),) if found is not None else ()))


def _table(run: FleetRun) -> Table:
    columns = (
        Column("number", True), Column("after", True), Column("what"), Column("where"), Column("why"), Column("action"),
        Column("no training", True), Column("repeated steps", True), Column("cost", True), Column("outcome"),
    )  # fmt: skip
    return Table("incidents", columns, tuple(_row(incident, run) for incident in run.incidents), detail=True)


def _row(incident: Incident, run: FleetRun) -> tuple[Cell, ...]:
    again, after = replayed_seconds(incident, run.step), incident.began - run.began
    cost, lost = incident.seconds.down + again, incident.lost_steps
    return (
        Cell(str(incident.number), float(incident.number)), Cell(_clock(after), after), Cell(incident.what),
        Cell(_place(incident)), Cell(say.clean(run.story(incident)) or Sentence("no details")), Cell(incident.action),
        Cell(say.seconds(incident.seconds.down), incident.seconds.down),
        Cell(Sentence("unknown")) if lost is None else Cell(f"{lost:,}", float(lost)), Cell(say.seconds(cost), cost),
        Cell(incident.outcome),
    )  # fmt: skip


def _place(incident: Incident) -> str:
    parts: list[str] = [quote(incident.node)] if incident.node else []
    if incident.ranks:
        numbers = f"{', '.join(map(str, incident.ranks[:8]))}{' …' if len(incident.ranks) > 8 else ''}"
        parts.append(Sentence(f"rank{'s' if len(incident.ranks) > 1 else ''} {{numbers}}", numbers=numbers))
    return join(parts, " ") if parts else Sentence("unknown")
