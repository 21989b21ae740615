"""A validation as one offline page: predicted against measured as points, errors by family, skipped rows with reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median

from markupsafe import Markup

from windtunnel.base.units import show_time
from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import COLOURS
from windtunnel.draw.page.frame import Cell
from windtunnel.reality.page.labels import NAMES, UNITS, format_value, label, shared_gpu
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import FamilySummary, Score
from windtunnel.records import PHASES

LEVELS = {"layer": 2, "step": 2, "submodule": 1}
OPACITY = (0.55, 0.85, 0.95)
MOST_POINTS = 4000
"""Maximum of points in a picture, divided evenly over classes; the caption states the number shown."""

WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 720, 560, 70, 46, 26
BAND = 0.10
"""Half width of the shaded band around equality."""


def page(report: Report, title: str = "Predicted against measured", founding: str = "", command: str = "") -> str:
    """The page's text. `founding`: a line on what the predictions rest on; `command`: shown in the footer."""
    quantities = list(dict.fromkeys(score.quantity for score in report.rows if score.error_pct is not None))
    sections = [
        _picture(quantity, [s for s in report.rows if s.quantity == quantity and s.error_pct is not None])
        for quantity in quantities
    ]
    gpu, several = shared_gpu(report), len(quantities) > 1
    families = [line for line in report.families if line.n]
    sections.append(_section("Errors by family, percent of measured", _families(families, gpu, several)))
    worst = sorted((s for s in report.rows if s.error_pct is not None), key=lambda s: -abs(s.error_pct or 0.0))[:40]
    if worst:
        sections.append(_section("Largest errors", _rows(worst, gpu)))
    reasons = Counter(s.skipped for s in report.rows if s.skipped is not None)
    if reasons:
        item = Markup("<li>{} × {}</li>")
        items = Markup().join(item.format(f"{count:,}", str(reason)) for reason, count in reasons.most_common())
        sections.append(_section(f"{sum(reasons.values()):,} skipped", Markup('<ul class="notes">{}</ul>').format(items)))
    heading = f"{title}{f' on {gpu}' if gpu else ''}"
    subtitle = [", ".join(Path(source).name for source in report.sources), *([founding] if founding else [])]
    return frame.page(heading, subtitle, _cards(report), Markup().join(sections), None, command)


def class_of(score: Score) -> str:
    """What a point's colour stands for: layers, a sub-module or a kernel class, all passes alike; else the family, and of
    training steps what is trained."""
    if score.quantity == "time_us" and score.precision and " " in score.family:
        words = label(score.family.split(" ", 1)[1]).split(" ")
        return " ".join(words[:-1] if len(words) > 1 and words[-1] in PHASES else words)
    return score.family if score.kind is None else f"{score.family}, {_TRAINED.get(score.kind.trained, score.kind.trained)}"


_TRAINED = {"dense": "dense", "experts": "mixtures of experts", "adapters": "adapters", "graph": "traced graphs"}
"""Models whose errors differ, and so have colours of their own."""


def _cards(report: Report) -> list[tuple[str, str, str]]:
    errors = [abs(error) for score in report.rows if (error := score.error_pct) is not None]
    skipped = sum(score.skipped is not None for score in report.rows)
    cards = [("rows compared", f"{len(errors):,}"), ("skipped", f"{skipped:,}")]
    if errors:
        near = sum(error <= 100 * BAND for error in errors) / len(errors)
        cards += [
            ("median |error|", f"{median(errors):.1f} %"),
            (f"within {100 * BAND:g} %", f"{100 * near:.0f} %"),
            ("90 % lie within", f"{sorted(errors)[math.ceil(0.9 * len(errors)) - 1]:.1f} %"),
        ]
    return [(name, value, "") for name, value in cards]


def _section(title: str, body: Markup) -> Markup:
    return frame.part("section", title, body)


def _picture(quantity: str, scores: Sequence[Score]) -> Markup:
    """Points on logarithmic axes; the diagonal is equality, the band around it `BAND` either way."""
    groups: dict[str, list[Score]] = {}
    for score in scores:
        if (score.measured or 0.0) > 0 and (score.predicted or 0.0) > 0:
            groups.setdefault(class_of(score), []).append(score)
    drawn = sum(map(len, groups.values()))
    if not drawn:
        return Markup()
    values = [value for listed in groups.values() for s in listed for value in (s.measured or 0.0, s.predicted or 0.0)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    scale = _Scale(low, max(high, low + 1))
    step = math.ceil(drawn / MOST_POINTS)
    marks, key = [], []
    ordered = sorted(groups.items(), key=lambda pair: (-_level(pair[0]), pair[0]))
    for number, (name, listed) in enumerate(ordered):
        few = len(ordered) <= len(COLOURS)  # more than differ for all eyes
        colour = COLOURS[number] if few else f"hsl({137 * number % 360} 62% 47%)"
        errors = [abs(s.error_pct or 0.0) for s in listed]
        title = f"{name}: {len(listed):,}, median {median(errors):.1f} %"
        key.append(
            f'<span><svg class="mark" viewBox="-6 -6 12 12" fill="{colour}">{_mark(0.0, 0.0, _level(name))}</svg>'
            f"{escape(title)}</span>"
        )
        points = "".join(_point(s, scale, _level(name)) for s in listed[::step])
        marks.append(f'<g fill="{colour}" fill-opacity="{OPACITY[_level(name)]}">{points}</g>')
    shown = f", every {step}th point drawn" if step > 1 else ""
    caption = f'<p class="soft">Each point is a row; on the line they agree, the band is ±{100 * BAND:g} %{shown}.</p>'
    marks.reverse()  # layers lie above sub-modules, and those above kernels
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="predicted against measured" style="min-width:560px">'
    body = f'<div class="scroll">{svg}{scale.frame(quantity)}{"".join(marks)}</svg></div>'
    what = NAMES.get(quantity, quantity)
    drawing = Markup(caption + body + f'<div class="key">{"".join(key)}</div>')  # every name in it is escaped above
    return _section(f"Predicted against measured {what}", drawing)


def _level(name: str) -> int:
    """2 for layers, 1 for sub-modules, 0 for everything else."""
    return LEVELS.get(name.split(" ", 1)[0], 0)


def _mark(x: float, y: float, level: int, title: str = "") -> str:
    """A square for a layer, a diamond for a sub-module, a dot."""
    if level == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2.6 if title else 4}">{title}</circle>'
    if level == 2:
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" stroke="var(--card)">{title}</rect>'
    return f'<path d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z" stroke="var(--card)">{title}</path>'


def _point(score: Score, scale: _Scale, level: int) -> str:
    x, y = scale.x(score.measured or 1.0), scale.y(score.predicted or 1.0)
    title = (
        f"{label(score.family)}, {score.id}: {score.job}, {format_value(score, score.measured)} measured, "
        f"{format_value(score, score.predicted)} predicted, {score.error_pct:+.1f} %"
    )
    return _mark(x, y, level, f"<title>{escape(title)}</title>")


class _Scale:
    """Powers of ten from `low` to `high` on both axes."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - EDGE) * (math.log10(value) - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - EDGE) * (math.log10(value) - self.low) / (self.high - self.low)

    def frame(self, quantity: str) -> str:
        """Grid, labels, band and diagonal."""
        unit = "" if quantity == "time_us" else f", {UNITS.get(quantity, '')}"
        first, last = 10.0**self.low, 10.0**self.high
        grid = []
        for power in range(self.low, self.high + 1):
            value = 10.0**power
            x, y, text = self.x(value), self.y(value), show_time(1e-6 * value) if quantity == "time_us" else f"{value:g}"
            grid.append(
                f'<path d="M{x:.1f} {EDGE}V{HEIGHT - BOTTOM}M{LEFT} {y:.1f}H{WIDTH - EDGE}" stroke="var(--line)"/>'
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        up, down = 1.0 + BAND, 1.0 / (1.0 + BAND)
        corners = ((first, first * up), (last / up, last), (last, last), (last, last * down), (first / down, first), (first, first))
        band = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in corners)
        line = f'<path d="M{self.x(first):.1f} {self.y(first):.1f}L{self.x(last):.1f} {self.y(last):.1f}" stroke="var(--soft)"/>'
        names = (
            f'<text class="strong" x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">measured{unit}</text>'
            f'<text class="strong" x="16" y="{HEIGHT / 2:.0f}" text-anchor="middle" '
            f'transform="rotate(-90 16 {HEIGHT / 2:.0f})">predicted{unit}</text>'
        )
        return f'{"".join(grid)}<polygon points="{band}" fill="var(--accent)" fill-opacity=".13"/>{line}{names}'


def _families(families: Sequence[FamilySummary], gpu: str, several: bool) -> Markup:
    """`several`: the families are of several quantities."""
    rows: list[list[Cell]] = [
        [
            (label(line.family, gpu) + (" (fitted)" if line.fitted else ""), None),
            *([(line.quantity, None)] if several else []),
            (f"{line.n:,}", float(line.n)),
            *map(_figure, (line.median_abs_pct, line.mape_pct, line.bias_pct, line.max_abs_pct)),
            (f"{line.skipped:,}", float(line.skipped)),
        ]
        for line in families
    ]
    numbers = [(head, True) for head in ("rows", "median", "mean |e|", "bias", "largest", "skipped")]
    heads = [("family", False), *([("quantity", False)] if several else []), *numbers]
    return frame.part("table", "families", heads, rows)


def _rows(scores: Sequence[Score], gpu: str) -> Markup:
    rows: list[list[Cell]] = [
        [(label(s.family, gpu), None), (s.id, None), (str(s.job), None), (format_value(s, s.measured), s.measured or 0.0),
         (format_value(s, s.predicted), s.predicted or 0.0), (f"{s.error_pct:+.1f} %", s.error_pct or 0.0)]
        for s in scores
    ]  # fmt: skip
    heads = [("family", False), ("row", False), ("what", False), ("measured", True), ("predicted", True), ("error", True)]
    return frame.part("table", "largest", heads, rows)


def _figure(value: float | None) -> Cell:
    return ("-", -1e9) if value is None else (f"{value:.1f}", value)
