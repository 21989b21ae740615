"""What limits a job, as terminal text and as a page: a tornado of rates, a list of switches."""

from __future__ import annotations

from html import escape

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from windtunnel.report.page import frame
from windtunnel.report.text.table import listing
from windtunnel.report.text.terminal import bar
from windtunnel.report.words import numbers as say
from windtunnel.search.levers.sensitivity import MORE, SMALL, Limit, Sensitivity, Turned

ROOM = 24
"""Characters of the longest bar."""

WIDTH, ROW, MIDDLE, EDGE = 760, 26, 480, 90
GOOD, BAD = "#2f9e44", "#c2410c"


def shown(result: Sensitivity) -> list[Limit]:
    """Limits that are no noise."""
    return [limit for limit in result.limits if max(abs(limit.elasticity), abs(limit.gain)) >= SMALL]


def show(result: Sensitivity, console: Console | None = None) -> None:
    """Print the tornado, the sum, switches, and what more memory would bring."""
    out = console or Console()
    out.print(Text(f"{say.clean(result.job.name)}: a step takes {say.seconds(result.step_time_s)}", style="bold"))
    limits = shown(result)
    table = listing(
        ("rate", "left"), (f"+{100 * MORE:.0f} % gains", "right"), ("elasticity", "right"), ("", "left"), wraps=("rate",)
    )
    longest = max((abs(limit.gain) for limit in limits), default=1.0) or 1.0
    for limit in limits:
        length = bar(abs(limit.gain) / longest, ROOM, "green" if limit.gain >= 0.0 else "red")
        table.add_row(Text(limit.words), _percent(limit.gain), f"{limit.elasticity:+.3f}", length)
    out.print(table)
    out.print(Text(_sum(result), style="dim"))
    if result.switches:
        out.print(Text("\nSwitches, each turned alone", style="bold"))
        out.print(_switches(result.switches))
    out.print(Text("\n" + _memory(result)))


def page(result: Sensitivity) -> str:
    """One offline page with the tornado."""
    limits = shown(result)
    heads = [("setting", False), ("gains", True), ("step", True), ("fits", False)]
    rows = [
        [
            (" ".join(turned.sets), None),
            (_percent(turned.gain), turned.gain),
            (say.seconds(turned.step_time_s), turned.step_time_s),
            ("yes" if turned.fits else "no", None),
        ]
        for turned in result.switches
    ]
    body = [
        frame.part("section", f"{100 * MORE:.0f} % more and less of each rate", _tornado(limits)),
        frame.part("section", "Sum", Markup("<p>{}</p><p>{}</p>").format(_sum(result), _memory(result))),
    ]
    if rows:
        body.append(frame.part("section", "Switches, each turned alone", frame.part("table", "switches", heads, rows)))
    cards = [("step", say.seconds(result.step_time_s), "")]
    cards += [(f"{limit.words}, elasticity", f"{limit.elasticity:+.2f}", "") for limit in limits[:3]]
    return frame.page(f"What limits {say.clean(result.job.name)}", [], cards, Markup().join(body))


def _tornado(limits: list[Limit]) -> Markup:
    """Bars from a middle line: the gain of more to the right, the loss of less to the left."""
    most = max((max(abs(limit.gain), abs(limit.loss)) for limit in limits), default=1.0) or 1.0
    scale = (WIDTH - MIDDLE - EDGE) / most
    marks = []
    for at, limit in enumerate(limits):
        y = ROW * at
        title = f"<title>{escape(limit.words)}: elasticity {limit.elasticity:+.3f}</title>"
        for share, colour in ((limit.gain, GOOD), (limit.loss, BAD)):
            x = MIDDLE + min(0.0, share * scale)
            marks.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{abs(share) * scale:.1f}" height="{ROW - 8}" fill="{colour}">{title}</rect>'
            )
        left = MIDDLE + min(limit.loss, limit.gain, 0.0) * scale
        right = MIDDLE + max(limit.loss, limit.gain, 0.0) * scale
        text = f'y="{y + ROW / 2 + 4:.0f}"'
        marks.append(f'<text x="0" {text}>{escape(limit.words)}</text>')
        marks.append(f'<text x="{left - 6:.1f}" {text} text-anchor="end">{_percent(limit.loss)}</text>')
        marks.append(f'<text x="{right + 6:.1f}" {text}>{_percent(limit.gain)}</text>')
    height = ROW * max(1, len(limits))
    line = f'<path d="M{MIDDLE} 0V{height}" stroke="var(--soft)"/>'
    return Markup(f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(marks)}{line}</svg>')  # texts are escaped above


def _switches(turned: tuple[Turned, ...]) -> object:
    table = listing(("setting", "left"), ("gains", "right"), ("step", "right"), ("", "left"), wraps=("setting",))
    for each in turned:
        fits = "" if each.fits else "does not fit"
        cells = (_percent(each.gain), say.seconds(each.step_time_s), fits)
        table.add_row(Text(" ".join(each.sets)), *cells, style="" if each.fits else "dim")
    return table


def _sum(result: Sensitivity) -> str:
    rates = sum(limit.elasticity for limit in result.limits)
    left = ", ".join(f"{rest:+.3f} inside {part}" for part, rest in result.rest.items() if abs(rest) >= SMALL)
    return (
        f"Elasticities of all rates add up to {rates:+.3f}"
        + (f"; what no rate changes, start-up times: {left}" if left else "")
        + f". Kernels, calls and host together: {result.total:+.4f}. At -1, all of them twice as fast halve the step."
    )


def _memory(result: Sensitivity) -> str:
    if result.memory is None:
        return f"No recompute or micro batch that {100 * MORE:.0f} % more memory has room for is faster."
    turned = result.memory
    return f"{100 * MORE:.0f} % more memory would allow {' '.join(turned.sets)}: {_percent(turned.gain)}."


def _percent(share: float) -> str:
    return f"{100.0 * share:+.2f} %"
