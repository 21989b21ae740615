"""The page of a run with failures: what takes its time, the interval between checkpoints, failures, spares, what would help."""

from __future__ import annotations

import math
from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import BLUE, GREEN, ORANGE, key_line, paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.goodput.answer import Goodput
from windtunnel.goodput.reasons import reasons, rests_on
from windtunnel.report.page.job_lines import describe_job, fields_part
from windtunnel.report.page.plots import PlotAxis, PlotLine, PlotPoint, TornadoRow, draw_plot, tornado
from windtunnel.report.page.prediction import section
from windtunnel.report.words.goodput import PART_NAMES, SHOWN_GAIN, name_of_failures, run_figures, say_time, what_follows
from windtunnel.sheet import numbers as say

MOST_LEVERS = 12


def write_page(answer: Goodput, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(answer, command), path)


def page(answer: Goodput, command: str = "") -> str:
    """The page's text."""
    sections = [section("What to look at first", frame.part("reasons", reasons(answer), ()))]
    if answer.steady.goodput > 0.0:
        sections.append(section("Where the time goes", _parts(answer)))
    sections.append(section("Failures", _failures(answer)))
    sections.append(section("The interval between checkpoints", _interval(answer)))
    if answer.spares:
        sections.append(section("Spare nodes", _spares(answer)))
    if levers := [one for one in answer.levers if one.gain >= SHOWN_GAIN][:MOST_LEVERS]:
        rows = [
            TornadoRow(one.name, (100.0 * one.gain,), (f"{100.0 * one.gain:+.2f} points",), f"{one.field}, halved")
            for one in levers
        ]
        sections.append(
            section("What halving one figure would bring", tornado(rows, "gain of each figure, halved") + _levers(answer))
        )
    sections.append(section("What this rests on", paragraphs(rests_on(answer))))
    sections.append(section("The job", fields_part(answer.job)))
    job, nodes = answer.job, answer.conditions.nodes
    who, how = describe_job(job)
    failures = f"{nodes:,} node{'s' * (nodes > 1)}, failures as {name_of_failures(answer.reliability)}"
    return frame.page(
        f"{say.clean(job.name)}: a run with failures", (who, f"{failures} · {how}"), _cards(answer), Markup().join(sections), None,
        command,
    )  # fmt: skip


def _cards(answer: Goodput) -> list[tuple[str, str, str]]:
    simulated = answer.simulated
    cards = []
    for name, value, _ in run_figures(answer):
        spread = f" ±{max(0.01, 100.0 * simulated.ettr_error):.2g}" if name == "ETTR" and simulated is not None else ""
        mood = "bad" if value == "never ends" else "good" if name == "goodput" and answer.goodput >= 0.9 else ""
        cards.append((name, value.replace(" %", f"{spread} %") if spread else value, mood))
    if not answer.fits:
        cards.append(("memory", "does not fit", "bad"))
    return cards


def _shares(answer: Goodput) -> tuple[dict[str, float], float | None]:
    """Shares of the parts of a run, and its mean hours where it ends."""
    simulated = answer.simulated
    if simulated is not None:
        total = sum(simulated.parts.values())
        return {name: each / total for name, each in simulated.parts.items()}, total
    return dict(answer.steady.parts), None if answer.expected_days is None else 24.0 * answer.expected_days


def _parts(answer: Goodput) -> Markup:
    """What trains as one bar, and what does not, cause by cause on a scale of its own."""
    shares, hours = _shares(answer)
    lost = [(name, shares.get(name, 0.0)) for name in PART_NAMES if name != "useful" and shares.get(name, 0.0) > 0.0]
    lost.sort(key=lambda one: -one[1])
    useful, most = shares.get("useful", 0.0), max((share for _, share in lost), default=1.0)
    wide = [("useful", useful, GREEN), ("lost", 1.0 - useful, ORANGE)]
    stripe = [
        {"share": 100.0 * share, "colour": colour, "title": say.percent(share, 2),
         "inside": f"{PART_NAMES.get(name, 'does not train')} {say.percent(share)}" if share > 0.12 else ""}
        for name, share, colour in wide
    ]  # fmt: skip
    bars = [
        {
            "label": PART_NAMES[name],
            "value": "" if hours is None else f"{share * hours:,.1f} h",
            "share": say.percent(share, 2),
            "width": 100.0 * share / most,
            "colour": ORANGE,
            "title": f"{PART_NAMES[name]}: {say.percent(share, 2)} of the run",
        }
        for name, share in lost
    ]
    rows: list[list[Cell]] = [
        [(PART_NAMES[name], None), *([] if hours is None else [(f"{share * hours:,.1f}", share * hours)]),
         (say.percent(share, 2), share)]
        for name in PART_NAMES if (share := shares.get(name, 0.0)) > 0.0
    ]  # fmt: skip
    heads = [("part", False), *([] if hours is None else [("hours", True)]), ("share", True)]
    table = Markup('<details style="margin-top:10px"><summary>As a table</summary>{}</details>')
    about = Markup('<p class="soft">What does not train, on a scale of its own:</p>') if bars else Markup()
    return frame.part("stripe", stripe) + about + frame.part("bars", bars) + table.format(frame.part("table", "parts", heads, rows))


def _failures(answer: Goodput) -> Markup:
    run, steady, simulated = answer.conditions, answer.steady, answer.simulated
    rows: list[list[Cell]] = []
    for name, kind in run.kinds:
        rate = steady.failures.get(name, 0.0)
        if rate <= 0.0:
            continue
        count = simulated.failures[name] if simulated is not None else rate * (answer.expected_days or 0.0) * 86400.0
        rows.append(
            [(name.replace("_", " "), None), (say_time(1.0 / rate), 1.0 / rate), (f"{count:,.1f}" if count else "-", count),
             (what_follows(kind), None)]
        )  # fmt: skip
    if not rows:
        return paragraphs(["No kind of failure has a rate above zero: only checkpoints cost time."])
    heads = [("kind", False), ("one every", True), ("in the run", True), ("what follows", False)]
    return frame.part("table", "failures", heads, rows)


def _interval(answer: Goodput) -> Markup:
    """What a checkpoint costs, and goodput over the interval, with the run's own and the best."""
    cost, choice = answer.conditions.checkpoint, answer.interval
    line = f"{say.size(cost.size)}: training stops {say_time(cost.save)}"
    if cost.flush:
        line += f", it can be loaded {say_time(cost.flush)} later, at {say.percent(cost.drag)} more time a step until then"
    lines = [f"{line}; a load takes {say_time(cost.load)}."]
    if not (math.isfinite(answer.steady.mtbf) and choice.goodput > 0.0):
        return paragraphs(lines)
    low, high = choice.flat
    lines.append(
        f"Best interval {say_time(choice.best)}; from {say_time(low)} to {say_time(high)} goodput is within 1 % of its best."
    )
    points = [(seconds, 100.0 * goodput) for seconds, goodput in choice.curve]
    own = answer.steady.goodput
    marks = [
        PlotPoint(
            answer.interval_s, 100.0 * own, f"this run: {say_time(answer.interval_s)}, goodput {say.percent(own, 2)}", ORANGE
        ),
        PlotPoint(
            choice.best, 100.0 * choice.goodput, f"best: {say_time(choice.best)}, goodput {say.percent(choice.goodput, 2)}", GREEN,
            "square", True,
        ),
    ]  # fmt: skip
    across, up = PlotAxis("seconds of training between checkpoints", say_time, True), PlotAxis("goodput", lambda v: f"{v:.3g} %")
    curve = draw_plot(
        marks, [PlotLine("goodput", points, BLUE)], across, up, "goodput over the interval between checkpoints", 280.0
    )
    key = key_line([("goodput, in closed form", BLUE), ("this run", ORANGE), ("the best interval (square)", GREEN)])
    rows: list[list[Cell]] = [[(say_time(s), s), (say.percent(share, 2), share)] for s, share in choice.curve]
    table = frame.part("table", "interval", [("interval", True), ("goodput", True)], rows)
    folded = Markup('<details style="margin-top:10px"><summary>As a table</summary>{}</details>').format(table)
    return paragraphs(lines) + curve + key + folded


def _spares(answer: Goodput) -> Markup:
    own, price = answer.conditions.spares, answer.job.cluster.price_per_gpu_hour
    rows: list[list[Cell]] = []
    for at, one in enumerate(answer.spares):
        note = ", ".join(["best"] * (at == 0) + ["this job"] * (one.spares == own))
        day = None if price is None else one.spares * answer.job.cluster.gpus_of_node * price * 24.0
        rows.append(
            [(f"{one.spares:,}", float(one.spares)), (say.percent(one.share), one.share),
             (say.percent(one.goodput, 2), one.goodput), (say.percent(one.per_node, 2), one.per_node),
             (say.percent(one.no_spare, 2), one.no_spare), ("-", -1.0) if day is None else (say.dollars(day), day), (note, None)]
        )  # fmt: skip
    heads = [
        ("spares", True), ("of nodes", True), ("goodput", True), ("per node paid", True), ("finds none", True), ("$ a day", True),
        ("", False),
    ]  # fmt: skip
    return frame.part("table", "spares", heads, rows)


def _levers(answer: Goodput) -> Markup:
    days = answer.work_days if answer.ends else None
    rows: list[list[Cell]] = []
    for one in [one for one in answer.levers if one.gain >= SHOWN_GAIN]:
        less = None if days is None else days / answer.steady.goodput - days / one.goodput
        rows.append(
            [(one.name, None), (one.field, None), (say.percent(one.goodput, 2), one.goodput),
             (f"{100.0 * one.gain:+.2f} points", one.gain), *([] if less is None else [(f"{less:,.2f}", less)])]
        )  # fmt: skip
    heads = [
        ("halved", False),
        ("field", False),
        ("goodput", True),
        ("gain", True),
        *([] if days is None else [("days less", True)]),
    ]
    table = frame.part("table", "levers", heads, rows)
    return Markup('<details style="margin-top:10px"><summary>As a table</summary>{}</details>').format(table)
