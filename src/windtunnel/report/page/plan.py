"""The page of a plan from a budget, a deadline or a loss: machines by days and dollars, where a step's time goes, the best row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import COLOURS, key_line, paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.predict.category import StepGroup
from windtunnel.report.page.plots import SHAPES, BarPart, BarRow, PlotAxis, PlotLine, PlotPoint, draw_plot, stacked_bars
from windtunnel.report.page.prediction import section
from windtunnel.report.words.errors import dollars_within, percent_within, seconds_within
from windtunnel.report.words.parts import COLOUR, group_sums
from windtunnel.report.words.plan import (
    format_value,
    reasons,
    say_hourly,
    say_layout,
    say_missed,
    say_question,
    say_short,
    stated_fields,
)
from windtunnel.search.budget.alternative import Alternative
from windtunnel.search.budget.planner import Planned
from windtunnel.sheet import numbers as say
from windtunnel.spec import names

MOST_ROWS, MOST_BARS = 200, 24
"""Rows of the table and bars of the picture at most, the best first."""


def write_page(answer: Planned, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(answer, command), path)


def page(answer: Planned, command: str = "") -> str:
    """The page's text."""
    rows = answer.alternatives
    sections = [section("The answer", paragraphs([line.strip() for line in reasons(answer)]))]
    if rows:
        sections.append(section("Days and dollars of each machine", _days_and_dollars(answer)))
        sections.append(section("Where the time of a step goes", _steps(rows)))
        sections.append(section("All rows", _table(rows)))
        if command_best := command_of(rows[0]):
            sections.append(section("To predict the best row in full", Markup("<pre><code>{}</code></pre>").format(command_best)))
    return frame.page(say_question(answer.wish), _subtitle(answer), _cards(rows), Markup().join(sections), None, command)


def _subtitle(answer: Planned) -> list[str]:
    if not answer.alternatives:
        return []
    good = sum(one.good for one in answer.alternatives)
    machines = list(dict.fromkeys(one.machine.name for one in answer.alternatives))
    named = ", ".join(machines[:6]) + (f" and {len(machines) - 6} more" if len(machines) > 6 else "")
    return [f"{len(answer.alternatives):,} alternatives on {named}; {good:,} meet every target"]


def _cards(rows: Sequence[Alternative]) -> list[tuple[str, str, str]]:
    if not rows:
        return [("alternatives", "none", "bad")]
    best = rows[0]
    p = best.prediction
    cards = [
        ("the best machine" if best.good else "nearest", f"{best.machine.cluster.gpus:,} × {best.machine.name}", ""),
        ("days", _say_days(best), "" if "deadline" not in best.beyond else "bad"),
    ]
    if best.price.cost is not None:
        mood = "" if "budget" not in best.beyond else "bad"
        cards.append(("cost of the run", dollars_within(best.price.cost, p.relative_error), mood))
    cards += [
        ("step time", seconds_within(p.step_time_s, p.relative_error), ""),
        ("MFU", percent_within(p.mfu, p.relative_error), ""),
        ("loss", f"{best.loss:.3f}", ""),
        ("meets every target", "yes" if best.good else say_missed(best), "good" if best.good else "bad"),
    ]
    return cards


def _say_days(one: Alternative) -> str:
    """`43.0 ±5.3`, `0.194 ±0.027`."""
    days = f"{one.days:,.1f}" if one.days >= 10.0 else f"{one.days:.3g}"
    return f"{days} ±{one.days * one.prediction.relative_error:.2g}"


def _name(one: Alternative) -> str:
    return f"{one.machine.cluster.gpus:,} × {one.machine.name}"


def _days_and_dollars(answer: Planned) -> Markup:
    """A point for each row, a colour and shape for each machine; what misses a target is hollow, targets are lines."""
    rows = answer.alternatives[:MOST_ROWS]
    priced = [one for one in rows if one.price.cost is not None]
    machines = list(dict.fromkeys(one.machine.name for one in priced))
    look = {name: (COLOURS[n % len(COLOURS)], SHAPES[n % len(SHAPES)]) for n, name in enumerate(machines)}
    points = [
        PlotPoint(
            one.days, one.price.cost or 0.0,
            f"{_name(one)}: {say.duration(one.days)}, {say.dollars(one.price.cost or 0.0)}, "
            f"±{100 * one.prediction.relative_error:.0f} %, loss {one.loss:.3f}"
            + ("" if one.good else f"; {say_missed(one)}"),
            *look[one.machine.name], not one.good,
        )
        for one in reversed(priced)
    ]  # fmt: skip
    if not points:
        return paragraphs(["No machine states a price: --set cluster.price_per_gpu_hour=2.5 states one."])
    lines, wish = [], answer.wish
    days, costs = [one.x for one in points], [one.y for one in points]
    reach = (0.9 * min(*days, wish.days or days[0]), 1.1 * max(*days, wish.days or days[0]))
    span = (0.9 * min(*costs, wish.budget or costs[0]), 1.1 * max(*costs, wish.budget or costs[0]))
    if wish.budget is not None:
        lines.append(PlotLine("the budget", [(reach[0], wish.budget), (reach[1], wish.budget)], "var(--ink)", "6 4"))
    if wish.days is not None:
        lines.append(PlotLine("the deadline", [(wish.days, span[0]), (wish.days, span[1])], "var(--ink)", "2 4"))
    picture = draw_plot(
        points, lines, PlotAxis("days", lambda v: f"{v:,.3g}", True), PlotAxis("cost of the run", _short_dollars, True),
        "days and dollars of each alternative",
    )  # fmt: skip
    about = (
        "hollow: misses a target; dashed: the budget; dotted: the deadline; a point under the mouse or the keyboard tells its row"
    )
    return picture + key_line([(name, colour) for name, (colour, _) in look.items()], about)


def _short_dollars(value: float) -> str:
    return f"${say_short(value)}"


def _steps(rows: Sequence[Alternative]) -> Markup:
    """The shares of a step on each row, waits included, and the step's time behind the bar."""
    bars, used = [], dict.fromkeys(group for one in rows[:MOST_BARS] for group in group_sums(one.prediction.breakdown))
    for one in rows[:MOST_BARS]:
        p = one.prediction
        parts = [
            BarPart(str(group), 100.0 * seconds / p.step_time_s, COLOUR[group])
            for group, seconds in group_sums(p.breakdown).items()
            if seconds > 0.0
        ]
        bars.append(BarRow(_name(one), parts, f"{seconds_within(p.step_time_s, p.relative_error)}, MFU {say.percent(p.mfu, 0)}"))
    entries = [(str(group), COLOUR[group]) for group in StepGroup if group in used]
    left = f"the first {MOST_BARS} of {len(rows)} rows" if len(rows) > MOST_BARS else ""
    return stacked_bars(bars, lambda v: f"{v:.3g} %", "shares of a step on each alternative") + key_line(entries, left)


def _table(rows: Sequence[Alternative]) -> Markup:
    heads = [
        ("machine", False), ("GPUs", True), ("$ a GPU hour", True), ("model", True), ("tokens", True), ("loss", True),
        ("days", True), ("cost", True), ("misses", False), ("capital", True), ("energy", True), ("step", True), ("±", True),
        ("MFU", True), ("batch", True), ("plan", False),
    ]  # fmt: skip
    cells = [_row(one) for one in rows[:MOST_ROWS]]
    owned = any(one.ownership is not None for one in rows)
    skipped = (set() if owned else {9}) | ({8} if all(one.good for one in rows) else set())
    kept = [[cell for at, cell in enumerate(row) if at not in skipped] for row in cells]
    left = [f"{len(rows) - MOST_ROWS:,} rows more are not shown."] if len(rows) > MOST_ROWS else []
    return frame.part("table", "rows", [head for at, head in enumerate(heads) if at not in skipped], kept) + paragraphs(left)


def _row(one: Alternative) -> list[Cell]:
    p, nothing = one.prediction, ("-", -1.0)
    hour, cost, energy = one.machine.dollars_per_gpu_hour, one.price.cost, one.price.energy_j
    unsure = "?" if "kernels" in one.assumed else ""
    return [
        (one.machine.name, None),
        (f"{one.machine.cluster.gpus:,}", float(one.machine.cluster.gpus)),
        nothing if hour is None else (say_hourly(one), hour),
        (say_short(one.parameters), one.parameters),
        (say_short(one.tokens), one.tokens),
        (f"{one.loss:.3f}", one.loss),
        (_say_days(one), one.days),
        nothing if cost is None else (dollars_within(cost, p.relative_error), cost),
        (say_missed(one), None),
        nothing if one.ownership is None else (say.dollars(one.ownership.capital), one.ownership.capital),
        nothing if energy is None else (say.energy(energy), energy),
        (say.seconds(p.step_time_s), p.step_time_s),
        (f"{100 * p.relative_error:.0f} %{unsure}", p.relative_error),
        (percent_within(p.mfu, p.relative_error, 0), p.mfu),
        (f"{p.job.plan.global_batch:,}", float(p.job.plan.global_batch)),
        (say_layout(one), None),
    ]


def command_of(one: Alternative) -> str:
    """The command line that predicts a row in full; empty for a model that has no name in the catalogue."""
    job = one.prediction.job
    if job.model.name not in names("models"):
        return ""
    sets = [f"cluster.gpus={one.machine.cluster.gpus}", f"tokens={one.tokens:.6g}"]
    sets += [f"{key}={format_value(value)}" for key, value in stated_fields(one).items()]
    words = " ".join(f"--set {text}" if " " not in text and "[" not in text else f"--set '{text}'" for text in sets)
    return f"windtunnel predict {job.model.name} --on {one.machine.name} --set runtime.framework={job.runtime.framework} {words}"
