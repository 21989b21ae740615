"""What a run with failures shows: its figures, where its time goes, failures, checkpoints, spares, what would help."""

from __future__ import annotations

import math
from typing import Any

from windtunnel.goodput.answer import Goodput, reasons, rests_on
from windtunnel.predict.sheet.job import describe_job, fields_part
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Block,
    Cell,
    Change,
    Column,
    Curve,
    Figure,
    Folded,
    Lines,
    Mark,
    Part,
    Plot,
    Scale,
    Section,
    Shares,
    Sheet,
    Table,
    Tornado,
)
from windtunnel.sheet.colours import BLUE, GREEN, ORANGE
from windtunnel.sheet.sentence import Sentence, join, quote
from windtunnel.spec import names

SHOWN_GAIN = 5e-5  # gain of goodput that is listed: 0.01 points, rounded
MOST_LEVERS, MOST_IN_TERMINAL = 12, 8

PART_NAMES = {
    "useful": "training",
    "slow": "slow nodes",
    "save": "stops for checkpoints",
    "drag": "slower beside flushes",
    "replay": "work done again",
    "detect": "detection",
    "diagnose": "diagnosis",
    "repair": "repair on the spot",
    "wait": "waiting for a node",
    "init": "start",
    "load": "load of checkpoints",
}
"""Parts of a run's wall time, in the order of reports."""


def run_sheet(answer: Goodput) -> Sheet:
    """What `goodput` shows."""
    job, nodes = answer.job, answer.conditions.nodes
    who, how = describe_job(job)
    failures = Sentence(
        "{nodes}, failures as {law}", nodes=say.count_words(nodes, "node"), law=name_of_failures(answer.reliability)
    )
    name = say.clean(job.name)
    gpus = Sentence("{gpus} x {gpu}", gpus=f"{job.cluster.gpus:,}", gpu=job.cluster.gpu.name)
    levers = [one for one in answer.levers if one.gain >= SHOWN_GAIN]
    return Sheet(
        Sentence("{job}: a run with failures", job=name),
        join((quote(name), gpus, failures)),
        _figures(answer),
        (
            Section("", ()),
            Section("What to look at first", (Lines(tuple(reasons(answer)), listed=True),)),
            Section("Where the time goes", _parts(answer) if answer.steady.goodput > 0.0 else ()),
            Section("Failures", (_failures(answer),)),
            Section("Checkpoints", _checkpoints(answer)),
            Section("Spare nodes", (_spares(answer),) if answer.spares else ()),
            Section("What halving one figure would bring", _levers(answer) if levers else ()),
            Section("What this rests on", (Lines(tuple(rests_on(answer)), mood="soft", listed=True),)),
            Section("The job", (fields_part(job),)),
        ),
        (who, join((failures, how), " · ")),
        titled=True,
        cards=True,
    )


def name_of_failures(reliability: str) -> str:
    """What to call a table of failures: its entry of the catalogue, or nobody's."""
    return quote(reliability) if reliability in names("reliability") else Sentence("the job states them")


def _figures(answer: Goodput) -> tuple[Figure, ...]:
    steady, simulated = answer.steady, answer.simulated
    figures = [
        _share("ettr", "ETTR", answer.ettr, None if simulated is None else simulated.ettr_error),
        _share("goodput", "goodput", answer.goodput, None, "good" if answer.goodput >= 0.9 else ""),
    ]
    if answer.work_days is not None:
        days = answer.expected_days
        ends = "never ends" if days is None else f"{days:,.1f}"
        figures.append(Figure("expected_days", "days", days, "day", None, ends, "bad" if days is None else ""))
        if simulated is not None and simulated.finished == 1.0:
            figures.append(_spread(simulated.days))
        figures.append(Figure("work_days", "days without failures", answer.work_days, "day", None, f"{answer.work_days:,.1f}"))
    elif simulated is not None:
        label = Sentence("training in {time}", time=say.duration(answer.expected_days or 0.0))
        mean = simulated.trained_days.mean
        figures.append(Figure("simulated.trained_days", label, mean, "day", None, say.duration(mean)))
        figures.append(_spread(simulated.trained_days))
    figures.append(Figure("closed.mtbf", "a failure every", steady.mtbf, "s long"))
    figures.append(Figure("closed.recovery", "a recovery takes", steady.recovery, "s long"))
    steps = Sentence("{time}, {steps}", time=say.long_time(answer.interval_s), steps=say.count_words(answer.interval_steps, "step"))
    figures.append(Figure("interval_s", "a checkpoint every", answer.interval_s, "s long", None, steps))
    return tuple(figures)


def _share(key: str, label: str, value: float, error: float | None, mood: str = "") -> Figure:
    within = "" if error is None else f"{100.0 * value:.2f} ±{max(0.01, 100.0 * error):.2g} %"
    return Figure(key, label, value, "%", None, say.percent(value, 2), mood, within=within)


def _spread(days: Any) -> Figure:
    words = " / ".join(f"{value:,.1f}" for value in (days.p10, days.p50, days.p90))
    return Figure("simulated.days", "p10 / p50 / p90", days.p50, "day", None, words)


def _parts(answer: Goodput) -> tuple[Block, ...]:
    """What trains as one bar, and what does not, cause by cause on a scale of its own; mean hours of a run where it ends."""
    simulated, steady = answer.simulated, answer.steady
    if simulated is not None:
        hours: float | None = sum(simulated.parts.values())
        shares = {name: part / sum(simulated.parts.values()) for name, part in simulated.parts.items()}
    else:
        hours, shares = None if answer.expected_days is None else 24.0 * answer.expected_days, dict(steady.parts)
    unit, whole = ("%", 1.0) if hours is None else ("h", hours)
    shown = [(name, label, share) for name, label in PART_NAMES.items() if (share := shares.get(name, 0.0)) > 0.0]
    lost = sorted((Part(label, whole * share, ORANGE) for name, label, share in shown if name != "useful"), key=lambda p: -p.value)
    useful = shares.get("useful", 0.0)
    groups = (Part("training", whole * useful, GREEN), Part("does not train", whole * (1.0 - useful), ORANGE))
    columns = (
        Column("part"),
        *((Column("hours", True),) if hours is not None else ()),
        Column("share", True),
        Column("", False, "pages"),
    )
    rows = tuple(
        (Cell(label), *((Cell(f"{share * hours:,.1f}", share * hours),) if hours is not None else ()),
         Cell(say.percent(share, 2), share), Cell("█" * round(30 * share) or "▏"))
        for _, label, share in shown
    )  # fmt: skip
    return (
        Shares(
            tuple(lost),
            unit,
            "What does not train is orange; its bars have a scale of their own." if lost else "",
            groups=groups,
            detail=True,
        ),
        Table("parts", columns, rows),
    )


def _failures(answer: Goodput) -> Block:
    run, steady, simulated = answer.conditions, answer.steady, answer.simulated
    if not any(run.rate(kind) for _, kind in run.kinds):
        return Lines(("No kind of failure has a rate above zero: only checkpoints cost time.",))
    columns = (Column("kind"), Column("one every", True), Column("in the run", True), Column("what follows", wraps=True))
    rows = []
    for name, kind in run.kinds:
        rate = steady.failures.get(name, 0.0)
        if rate <= 0.0:
            continue
        count = simulated.failures[name] if simulated is not None else rate * (answer.expected_days or 0.0) * 86400.0
        rows.append(
            (Cell(Sentence(name.replace("_", " "))), Cell(say.long_time(1.0 / rate), 1.0 / rate),
             Cell(f"{count:,.1f}" if count else "-", count), Cell(_what_follows(kind)))
        )  # fmt: skip
    return Table("failures", columns, tuple(rows))


def _what_follows(kind: Any) -> Sentence:
    words = []
    if kind.slows > 1.0:
        times = f"{kind.slows:g}"
        words.append(Sentence("steps take {times} times as long for {time}", times=times, time=say.long_time(kind.detect.mean)))
    elif kind.detect.mean > 0.0:
        words.append(Sentence("seen after {time}", time=say.long_time(kind.detect.mean)))
    if kind.diagnose.mean > 0.0:
        words.append(Sentence("diagnosed in {time}", time=say.long_time(kind.diagnose.mean)))
    if kind.automatic < 1.0:
        share, time = say.percent(1.0 - kind.automatic), say.long_time(kind.by_hand.mean)
        words.append(Sentence("{share} by hand, {time}", share=share, time=time))
    if kind.repair.mean > 0.0:
        words.append(Sentence("{time} on the spot", time=say.long_time(kind.repair.mean)))
    flags = (("another node", kind.replaces_node), ("saves first", kind.saves_first), ("no restart", not kind.restarts))
    words += [Sentence(text) for text, holds in flags if holds]
    words += [Sentence("{share} come again", share=say.percent(kind.returns, 0))] * (kind.returns > 0.0)
    return join(words) if words else Sentence("restart")


def _checkpoints(answer: Goodput) -> tuple[Block, ...]:
    """What a checkpoint costs, and goodput over the interval, with the run's own and the best."""
    cost, choice = answer.conditions.checkpoint, answer.interval
    facts = {"size": say.size(cost.size), "save": say.long_time(cost.save), "load": say.long_time(cost.load)}
    line = Sentence("{size}: training stops {save}; a load takes {load}.", **facts)
    if cost.flush:
        line = Sentence(
            "{size}: training stops {save}, it can be loaded {flush} later, at {drag} more time a step until then; a load takes "
            "{load}.",
            **facts, flush=say.long_time(cost.flush), drag=say.percent(cost.drag),
        )  # fmt: skip
    if not (math.isfinite(answer.steady.mtbf) and choice.goodput > 0.0):
        return (Lines((line,)),)
    low, high = choice.flat
    best = Sentence(
        "Best interval {best}; from {low} to {high} goodput is within 1 % of its best.",
        best=say.long_time(choice.best), low=say.long_time(low), high=say.long_time(high),
    )  # fmt: skip
    own = answer.steady.goodput
    template = "{which}: {time}, goodput {share}"
    marks = (
        Mark(answer.interval_s, own, Sentence(
            template, which=Sentence("this run"), time=say.long_time(answer.interval_s), share=say.percent(own, 2)), ORANGE),
        Mark(choice.best, choice.goodput, Sentence(
            template, which=Sentence("best"), time=say.long_time(choice.best), share=say.percent(choice.goodput, 2)),
            GREEN, "square", True),
    )  # fmt: skip
    plot = Plot(
        "goodput over the interval between checkpoints", Scale("seconds of training between checkpoints", "s long", True),
        Scale("goodput", "%"), marks, (Curve("goodput", BLUE, tuple(choice.curve)),), 280.0,
        (("goodput, in closed form", BLUE), ("this run", ORANGE), ("the best interval (square)", GREEN)), sketch=True,
    )  # fmt: skip
    rows = tuple((Cell(say.long_time(time), time), Cell(say.percent(share, 2), share)) for time, share in choice.curve)
    table = Table("interval", (Column("interval", True), Column("goodput", True)), rows)
    return (Lines((line, best)), plot, Folded("As a table", (table,), detail=True))


def _spares(answer: Goodput) -> Table:
    own, cluster = answer.conditions.spares, answer.job.cluster
    price = cluster.price_per_gpu_hour
    heads = ("spares", "of nodes", "goodput", "per node paid", "finds none", *(("$ a day",) if price is not None else ()))
    rows = []
    for number, choice in enumerate(answer.spares):
        notes = [Sentence("best")] * (number == 0) + [Sentence("this job")] * (choice.spares == own)
        cells = [Cell(f"{choice.spares:,}", float(choice.spares)), Cell(say.percent(choice.share), choice.share)]
        cells += [Cell(say.percent(value, 2), value) for value in (choice.goodput, choice.per_node, choice.no_spare)]
        if price is not None:
            day = choice.spares * cluster.gpus_of_node * price * 24.0
            cells.append(Cell(say.dollars(day), day))
        rows.append((*cells, Cell(join(notes))))
    return Table("spares", (*(Column(head, True) for head in heads), Column("")), tuple(rows))


def _levers(answer: Goodput) -> tuple[Block, ...]:
    shown = [lever for lever in answer.levers if lever.gain >= SHOWN_GAIN]
    days = answer.work_days if answer.ends else None
    columns = (
        Column("halved"), Column("field", left_out="terminal"), Column("goodput", True), Column("gain", True),
        *((Column("days less", True),) if days is not None else ()),
    )  # fmt: skip
    rows = []
    for lever in shown:
        cells = [
            Cell(lever.name),
            Cell(lever.field),
            Cell(say.percent(lever.goodput, 2), lever.goodput),
            Cell(_points(lever.gain), lever.gain),
        ]
        if days is not None:
            less = days / answer.steady.goodput - days / lever.goodput
            cells.append(Cell(f"{less:,.2f}", less))
        rows.append(tuple(cells))
    changes = tuple(
        Change(lever.name, (100.0 * lever.gain,), (_points(lever.gain),), Sentence("{field}, halved", field=lever.field))
        for lever in shown[:MOST_LEVERS]
    )
    return (
        Tornado("gain of each figure, halved", changes, detail=True),
        Table("levers", columns, tuple(rows), most=MOST_IN_TERMINAL),
    )  # fmt: skip


def _points(gain: float) -> Sentence:
    return Sentence("{gain} points", gain=f"{100.0 * gain:+.2f}")
