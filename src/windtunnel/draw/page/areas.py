"""Memory over one step, one drawing per stage: tensors stacked by content, reserved and total bytes; on a page, or as a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from windtunnel.draw.page.charts import frame_svg
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Picture

LEFT, WIDE, TALL, GAP = 70.0, 1160.0, 190.0, 62.0
_STYLE = "text{font:12px system-ui,sans-serif;fill:#5b6472}.strong{fill:#111827;font-weight:600}"
_THEMED = (("#111827", "var(--ink)"), ("#b91c1c", "var(--bad)"), ("#dfe3e8", "var(--line)"))
"""Colours of a picture alone, and of the same on a page in any theme."""

Words = Callable[[str], str]


def memory(picture: Picture, words: Words) -> Markup:
    """The drawing on a page. `data`: its `title`, `parts` as [name, colour], and `stages` with `title`, `time` (s), `parts`,
    `reserved` and `shown` (bytes at these times), `capacity`, and where it has no room `lacks` in words and `lack_time`."""
    inside, height = _drawing(picture.data, words)
    for fixed, themed in _THEMED:
        inside = inside.replace(fixed, themed)
    return frame_svg(inside, height, words(picture.label), "memory", WIDE + 20.0)


def memory_svg(picture: Picture, words: Words = str) -> str:
    """The same as a file of its own: all stages below each other, on one clock and one scale."""
    inside, height = _drawing(picture.data, words)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE + 20:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(words(picture.label))}"><style>{_STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{inside}</svg>\n"
    )


def _drawing(data: Mapping[str, Any], words: Words) -> tuple[str, float]:
    """The inside of the picture, and its height."""
    stages = data["stages"]
    end = max(stage["time"][-1] for stage in stages) or 1.0
    top = 1.05 * max(max(*stage["shown"], stage["capacity"]) for stage in stages)
    body = [f'<text class="strong" x="{LEFT}" y="16">{escape(words(data["title"]))}</text>']
    x = LEFT
    for name, colour in (*data["parts"], ("reserved", "#111827"), ("nvidia-smi", "#b91c1c")):
        label = words(name)
        body.append(
            f'<rect x="{x:.0f}" y="24" width="11" height="11" fill="{colour}"/><text x="{x + 15:.0f}" y="34">{escape(label)}</text>'
        )
        x += 30.0 + 7.5 * len(label)
    body += [_stage(stage, data["parts"], 62.0 + n * (TALL + GAP), (end, top), words) for n, stage in enumerate(stages)]
    return "".join(body), 64.0 + len(stages) * (TALL + GAP)


def _stage(
    stage: Mapping[str, Any], parts: Sequence[tuple[str, str]], y: float, most: tuple[float, float], words: Words
) -> str:  # fmt: skip
    """Stacked areas of one stage; allocation is a step function."""
    gib, (end, top) = 2.0**30, most
    xs = [LEFT + (WIDE - LEFT) * moment / end for moment in stage["time"]]

    def place(value: float) -> float:
        return y + TALL * (1.0 - value / top)

    out = [f'<text class="strong" x="{LEFT}" y="{y - 4:.1f}">{escape(words(stage["title"]))}</text>']
    for share in (0.0, 0.5, 1.0):
        level = share * stage["capacity"]
        out.append(
            f'<line x1="{LEFT}" x2="{WIDE}" y1="{place(level):.1f}" y2="{place(level):.1f}" stroke="#dfe3e8"/>'
            f'<text x="{LEFT - 8}" y="{place(level) + 4:.1f}" text-anchor="end">{level / gib:.0f} GiB</text>'
        )
    below = [0.0] * len(xs)
    for (name, colour), sizes in zip(parts, stage["parts"], strict=True):
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        if max(high - low for high, low in zip(above, below, strict=True)) > 0.0:
            points = _steps(xs, [place(v) for v in above]) + _steps(xs, [place(v) for v in below])[::-1]
            out.append(f'<polygon points="{_text(points)}" fill="{colour}"><title>{escape(words(name))}</title></polygon>')
        below = above
    for values, colour, dash, name in (
        (stage["reserved"], "#111827", "", "reserved"), (stage["shown"], "#b91c1c", "5 3", "nvidia-smi"),
    ):  # fmt: skip
        out.append(
            f'<polyline points="{_text(_steps(xs, [place(v) for v in values]))}" fill="none" stroke="{colour}" stroke-width="1.4" '
            f'stroke-dasharray="{dash}"><title>{escape(words(name))}</title></polyline>'
        )
    out.append(
        f'<text x="{LEFT}" y="{y + TALL + 16:.1f}">0</text><text x="{WIDE}" y="{y + TALL + 16:.1f}" text-anchor="end">'
        f"{say.seconds(end)}</text>"
    )
    if stage["lacks"]:
        x = LEFT + (WIDE - LEFT) * stage["lack_time"] / end
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + TALL:.1f}" stroke="#b91c1c" stroke-width="2"/>'
            f'<text x="{LEFT}" y="{y + TALL + 32:.1f}" style="fill:#b91c1c">{escape(words(stage["lacks"]))}</text>'
        )
    return "".join(out)


def _steps(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """Corners of a step function."""
    points = [(xs[0], ys[0])]
    for x, y, before in zip(xs[1:], ys[1:], ys, strict=False):
        points += [(x, before), (x, y)]
    return points


def _text(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
