"""What limits a job, as terminal text and as a page: a tornado of rates, a list of switches."""

from __future__ import annotations

from html import escape

from markupsafe import Markup

from windtunnel.report.page import frame
from windtunnel.report.words import numbers as say
from windtunnel.report.words.sensitivity import memory_sentence, notable_limits, signed_percent, sum_sentence
from windtunnel.search.levers.sensitivity import MORE, Limit, Sensitivity

WIDTH, ROW, MIDDLE, EDGE = 760, 26, 480, 90
GOOD, BAD = "#2f9e44", "#c2410c"


def page(result: Sensitivity) -> str:
    """One offline page with the tornado."""
    limits = notable_limits(result)
    heads = [("setting", False), ("gains", True), ("step", True), ("fits", False)]
    rows = [
        [
            (" ".join(turned.sets), None),
            (signed_percent(turned.gain), turned.gain),
            (say.seconds(turned.step_time_s), turned.step_time_s),
            ("yes" if turned.fits else "no", None),
        ]
        for turned in result.switches
    ]
    body = [
        frame.part("section", f"{100 * MORE:.0f} % more and less of each rate", _tornado(limits)),
        frame.part("section", "Sum", Markup("<p>{}</p><p>{}</p>").format(sum_sentence(result), memory_sentence(result))),
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
        marks.append(f'<text x="{left - 6:.1f}" {text} text-anchor="end">{signed_percent(limit.loss)}</text>')
        marks.append(f'<text x="{right + 6:.1f}" {text}>{signed_percent(limit.gain)}</text>')
    height = ROW * max(1, len(limits))
    line = f'<path d="M{MIDDLE} 0V{height}" stroke="var(--soft)"/>'
    return Markup(f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(marks)}{line}</svg>')  # texts are escaped above
