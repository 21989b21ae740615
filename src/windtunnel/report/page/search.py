"""The page of a search: the front, the space in parallel coordinates, each plan's breakdown, and the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import COLOURS, say_number
from windtunnel.draw.page.frame import Cell
from windtunnel.predict.category import StepGroup
from windtunnel.report.page.plots import SHAPES, PlotAxis, PlotPoint, draw_plot
from windtunnel.report.page.prediction import section
from windtunnel.report.words.parts import COLOUR, parts_of
from windtunnel.report.words.search import (
    certificate_lines,
    loss_of,
    machine_decision,
    number_of,
    plan_words,
    reason_lines,
    titles,
    value_text,
)
from windtunnel.search.explain import Explanation
from windtunnel.search.find import Candidate
from windtunnel.search.result import SearchResult
from windtunnel.sheet import numbers as say

MOST_PLANS = 50
"""Plans on the page, best first."""

MOST_LINES = 120
"""Plans in parallel coordinates."""

WIDTH, HEIGHT, MARGIN = 900, 300, 40


def write_page(result: SearchResult, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(result, command), path)


def page(result: SearchResult, command: str = "") -> str:
    """The page's text."""
    sections = [section("Best plans", _plans(result))]
    if len(result.objectives) > 1:
        sections.append(section(f"{result.objectives[0].unit} and {result.objectives[1].unit}", _front(result)))
    sections.append(section("Where the time goes", _breakdowns(result)))
    sections.append(section("Predicted plans in parallel coordinates; dark is better", _coordinates(result)))
    for why in result.explanations:
        reasons, decisions = titles(result, why)
        if lines := reason_lines(result, why):
            sections.append(section(reasons, _paragraphs(lines)))
        if why.decisions or machine_decision(result):
            sections.append(section(decisions, _decisions(why, machine_decision(result))))
    sections.append(section("How sure this is", _paragraphs(certificate_lines(result.certificate, result))))
    sections.append(
        section(
            "To predict the best plan in full",
            Markup('<pre style="white-space:pre-wrap"><code>{}</code></pre>').format(result.command),
        )
    )
    best = result.ranked[0]
    job = result.jobs[best.frame]
    cards = [
        ("best step", say.seconds(best.outcome.step_time_s), "good"),
        ("MFU", say.percent(best.outcome.mfu), ""),
        ("plans", f"{result.certificate.plans:,}", ""),
        ("predicted", f"{result.certificate.predicted:,}", ""),
        (
            "best of the space" if result.certificate.exact else "a plan may be better by",
            "proven" if result.certificate.exact else f"at most {say.percent(result.certificate.gap)}",
            "good" if result.certificate.exact else "",
        ),
    ]
    subtitle = (f"{job.model.name} on {result.where(best)}", plan_words(result.fields(best)))
    return frame.page(f"Search: {job.name}", subtitle, cards, Markup().join(sections), None, command)


def _paragraphs(lines: Sequence[str]) -> Markup:
    return Markup().join(Markup("<p>{}</p>").format(line) for line in lines)


def _plans(result: SearchResult) -> Markup:
    heads = [
        ("", True),
        ("step", True),
        *((each.unit, True) for each in result.objectives if each.name != "time"),
        ("MFU", True),
        ("memory", True),
        ("plan", False),
    ]
    rows: list[list[Cell]] = []
    shown = result.ranked[:MOST_PLANS]
    for number, one in enumerate(shown):
        values = [
            (number_of(each, v), each.shown(v))
            for each, v in zip(result.objectives, one.values, strict=True)
            if each.name != "time"
        ]
        label = result.labels[one.frame]
        rows.append(
            [
                (str(number + 1), float(number + 1)),
                (say.seconds(one.outcome.step_time_s), one.outcome.step_time_s),
                *values,
                (say.percent(one.outcome.mfu), one.outcome.mfu),
                (say.size(one.outcome.memory), one.outcome.memory),
                ((f"{label}: " if label else "") + plan_words(result.fields(one)), None),
            ]
        )
    return frame.part("table", "plans", heads, rows)


def _decisions(why: Explanation, machine: tuple[str, str, str, str] | None) -> Markup:
    rows: list[list[Cell]] = [] if machine is None else [[(text, None) for text in machine]]
    for one in why.decisions:
        loss = one.loss if math.isfinite(one.loss) else 1e9
        rows.append(
            [
                (one.path, None),
                (value_text(one.value), None),
                ("none fits" if one.other is None else value_text(one.other), None),
                (loss_of(one), loss),
            ]
        )
    heads = [("decision", False), ("best", False), ("next best", False), ("costs", True)]
    return frame.part("table", f"decisions-{why.objective.name}", heads, rows)


def _breakdowns(result: SearchResult) -> Markup:
    """One stripe a plan, as wide as its step beside the longest."""
    shown = [one for one in result.ranked[:10] if one.outcome.breakdown]
    longest = max((one.outcome.step_time_s for one in shown), default=1.0)
    lines = []
    for number, one in enumerate(shown):
        breakdown = one.outcome.breakdown or {}
        parts = []
        for label, colour, seconds in _groups(breakdown):
            share = seconds / one.outcome.step_time_s
            parts.append({"share": share, "colour": colour, "title": f"{label}: {say.seconds(seconds)}", "inside": ""})
        stripe = frame.part("stripe", parts)
        width = 100.0 * one.outcome.step_time_s / longest
        lines.append(
            Markup('<p class="soft">{}. {}</p><div style="width:{:.1f}%">{}</div>').format(
                number + 1, say.seconds(one.outcome.step_time_s), width, stripe
            )
        )
    seen: dict[str, str] = {}
    for one in shown:
        for label, colour, _ in _groups(one.outcome.breakdown or {}):
            seen.setdefault(label, colour)
    legend = Markup(" ").join(
        Markup('<span style="white-space:nowrap"><span style="color:{}">■</span> {}</span>').format(colour, label)
        for label, colour in seen.items()
    )
    return Markup().join(lines) + Markup('<p class="soft">{}</p>').format(legend)


def _groups(breakdown: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """(label, colour, seconds) of the groups of parts of a step."""
    sums: dict[StepGroup, float] = {}
    for part in parts_of(breakdown, 1.0):
        sums[part.group] = sums.get(part.group, 0.0) + part.seconds
    return [(str(group.value), COLOUR[group], seconds) for group, seconds in sums.items() if seconds > 0.0]


def _front(result: SearchResult) -> Markup:
    """Predicted plans by the first two objectives, a colour and shape a machine; the undominated ones are filled."""
    first, second = result.objectives[:2]
    colours = _machine_colours(result)
    shapes = {name: SHAPES[place % len(SHAPES)] for place, name in enumerate(colours)}
    points = []
    for number, one in enumerate(result.ranked[:MOST_PLANS]):
        x, y, machine = first.shown(one.values[0]), second.shown(one.values[1]), result.jobs[one.frame].cluster.id
        tip = f"{x:,.4g} {first.unit}, {y:,.4g} {second.unit}: {result.labels[one.frame]} {plan_words(result.fields(one))}"
        points.append(PlotPoint(x, y, tip, colours[machine], shapes[machine], number >= result.front))
    axes = PlotAxis(first.unit, say_number), PlotAxis(second.unit, say_number)
    about = Markup('<p class="soft">Filled: no other plan beats it in every objective.</p>')
    return draw_plot(points[::-1], (), *axes, f"{second.unit} against {first.unit}", 320.0) + about + _legend(result)


def _machine_colours(result: SearchResult) -> dict[str, str]:
    """A colour for each cluster of the result."""
    names = dict.fromkeys(job.cluster.id for job in result.jobs)
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def _legend(result: SearchResult) -> Markup:
    """Which colour is which machine; nothing for one machine."""
    colours = _machine_colours(result)
    if len(colours) == 1:
        return Markup()
    each = (Markup('<span style="color:{}">■</span> {}').format(colour, name) for name, colour in colours.items())
    return Markup('<p class="soft">{}</p>').format(Markup(" ").join(each))


def _range(values: Sequence[float]) -> tuple[float, float]:
    least, most = min(values), max(values)
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _coordinates(result: SearchResult) -> Markup:
    """One line a predicted plan over the fields in which plans differ, and its step time at the right."""
    shown = result.ranked[:MOST_LINES]
    fields = [dict(one.change.fields) for one in shown]
    hidden = ("plan.dp", "plan.stages", "plan.sequence_parallel", "plan.shard_group")
    paths = [path for path in fields[0] if len({str(table.get(path)) for table in fields}) > 1 and path not in hidden]
    if not paths:
        return _paragraphs(["All predicted plans have the same fields."])
    columns = [*paths, "step"]
    xs = [MARGIN + place * (WIDTH - 2.5 * MARGIN) / (len(columns) - 1) for place in range(len(columns))]
    values = {path: sorted({_order_key(table.get(path)) for table in fields}) for path in paths}
    fastest, slowest = _range([one.outcome.step_time_s for one in shown])
    lines = []
    for number in reversed(range(len(shown))):
        one, table = shown[number], fields[number]
        heights = [_height(values[path].index(_order_key(table.get(path))), len(values[path])) for path in paths]
        share = (one.outcome.step_time_s - fastest) / (slowest - fastest)
        heights.append(30 + share * (HEIGHT - 60))
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, heights, strict=True))
        style = (
            'stroke="var(--good)" stroke-width="2.5"'
            if number == 0
            else f'stroke="{_line_colour(result, one)}" stroke-opacity="{0.6 - 0.5 * share:.2f}"'
        )
        lines.append(
            f'<polyline points="{points}" fill="none" {style}><title>{escape(say.seconds(one.outcome.step_time_s))}: '
            f"{escape(plan_words(result.fields(one)))}</title></polyline>"
        )
    heads = "".join(
        f'<text x="{x:.1f}" y="14" text-anchor="middle">{escape(_head(path))}</text>' for x, path in zip(xs, columns, strict=True)
    )
    ticks = "".join(
        f'<text x="{x + 4:.1f}" y="{_height(place, len(values[path])) + 4:.1f}" class="tick">{escape(value_text(value[1]))}</text>'
        for x, path in zip(xs, paths, strict=False)
        for place, value in enumerate(values[path])
        if len(value_text(value[1])) < 14
    )
    top, bottom = (
        f'<text x="{xs[-1] + 4:.1f}" y="{y}">{escape(say.seconds(step))}</text>'
        for y, step in ((34, fastest), (HEIGHT - 26, slowest))
    )
    return _svg("".join(lines) + heads + ticks + top + bottom) + _legend(result)


def _line_colour(result: SearchResult, one: Candidate) -> str:
    """That of the plan's machine, or of the text where there is one machine."""
    colours = _machine_colours(result)
    return colours[result.jobs[one.frame].cluster.id] if len(colours) > 1 else "currentColor"


def _head(path: str) -> str:
    return path.removeprefix("plan.").removeprefix("runtime.").replace("_", " ")


def _order_key(value: Any) -> tuple[str, Any]:
    """A value that can be sorted among others of its field."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:020.6f}", value
    return value_text(value) if value is not None else "", value


def _height(place: int, count: int) -> float:
    return 30 + (place + 0.5) * (HEIGHT - 60) / count


def _svg(inside: str) -> Markup:
    return Markup(  # noqa: S704 -- every text inside went through escape()
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'style="width:100%;min-width:600px;font-size:11px;fill:currentColor">{inside}</svg></div>'
    )
