"""Memory over one step, one drawing per stage: tensors stacked by content, reserved and total bytes; as a picture or a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from markupsafe import Markup

from windtunnel.base.errors import FileError, SpecError
from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import frame_svg
from windtunnel.draw.page.frame import Cell
from windtunnel.memory import PARTS, OverTime
from windtunnel.memory.over_time import MOMENTS
from windtunnel.report.page.job_lines import describe_job
from windtunnel.report.page.prediction import section
from windtunnel.report.words.parts import MEMORY_COLOUR
from windtunnel.sheet import numbers as say
from windtunnel.spec import Job

SUFFIXES = (".svg", ".html")
COLOUR = {part: MEMORY_COLOUR.get(part, MEMORY_COLOUR["workspace"]) for part in PARTS}
LEFT, WIDE, TALL, GAP = 70.0, 1160.0, 190.0, 62.0
_STYLE = "text{font:12px system-ui,sans-serif;fill:#5b6472}.strong{fill:#111827;font-weight:600}"
_THEMED = (("#111827", "var(--ink)"), ("#b91c1c", "var(--bad)"), ("#dfe3e8", "var(--line)"))
"""Colours of a picture alone, and of the same on a page in any theme."""


def check_name(path: str) -> None:
    """Raise SpecError for a file name without a picture's ending."""
    if not path.lower().endswith(SUFFIXES):
        raise SpecError("--picture", path, "a name that ends in .svg or .html")


def write(stages: Sequence[OverTime], job: Job, path: str, command: str = "") -> None:
    """The picture as a file, .svg or .html; FileError where it cannot be written. `command`: in the page's footer."""
    if not path.lower().endswith(".svg"):
        frame.write_page(page(stages, job, command), path, "--picture")
        return
    try:
        Path(path).write_text(svg(stages, job.name), encoding="utf-8")
    except OSError as error:
        raise FileError("--picture", path, "a file that can be written", f"{error.strerror}.") from error


def page(stages: Sequence[OverTime], job: Job, command: str = "") -> str:
    """The picture as a page in either theme, with a table of what each stage holds at its highest moment."""
    inside, height = _drawing(stages, job.name)
    for fixed, themed in _THEMED:
        inside = inside.replace(fixed, themed)
    picture = frame_svg(inside, height, "memory over one step", "memory", WIDE + 20.0)
    fullest = max(stages, key=lambda stage: float(stage.shown.max()))
    most = float(fullest.shown.max())
    cards = [
        ("the fullest stage", str(fullest.stage), ""),
        ("at most in nvidia-smi", say.size(most), "bad" if most > fullest.capacity else ""),
        ("of", say.size(fullest.capacity), ""),
        ("allocated at most", say.size(float(fullest.allocated.max())), ""),
    ]
    heads = [
        ("stage", True),
        ("after", True),
        ("allocated", True),
        ("reserved", True),
        ("nvidia-smi", True),
        *((part, True) for part in PARTS),
    ]
    rows: list[list[Cell]] = []
    for one in stages:
        at = int(one.allocated.argmax())
        sizes = [float(one.allocated[at]), float(one.reserved[at]), float(one.shown[at]), *map(float, one.parts[at])]
        begin: list[Cell] = [(str(one.stage), float(one.stage)), (say.seconds(float(one.time[at])), float(one.time[at]))]
        rows.append([*begin, *((say.size(size), size) for size in sizes)])
    lacks = [text for one in stages if (text := no_room_sentence(one))]
    body = [section("Memory of the fullest GPU over one step", picture + frame.part("reasons", [], lacks) if lacks else picture)]
    body.append(section("At the highest moment of each stage", frame.part("table", "highest", heads, rows)))
    title = f"{say.clean(job.name)}: memory"
    return frame.page(title, describe_job(job), cards, Markup().join(body), None, command)


def svg(stages: Sequence[OverTime], name: str) -> str:
    """All stages below each other, on one clock and one scale."""
    inside, height = _drawing(stages, name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE + 20:.0f} {height:.0f}" role="img" '
        f'aria-label="Memory over one step"><style>{_STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{inside}</svg>\n"
    )


def _drawing(stages: Sequence[OverTime], name: str) -> tuple[str, float]:
    """The inside of the picture, and its height."""
    thin = [stage.thin(MOMENTS) for stage in stages]
    end = max(float(stage.time[-1]) for stage in thin) or 1.0
    top = 1.05 * max(max(float(stage.shown.max()) for stage in thin), max(stage.capacity for stage in thin))
    body = [f'<text class="strong" x="{LEFT}" y="16">{escape(say.clean(name))}: memory of the fullest GPU over one step</text>']
    x = LEFT
    for label, colour in (*COLOUR.items(), ("reserved", "#111827"), ("nvidia-smi", "#b91c1c")):
        body.append(
            f'<rect x="{x:.0f}" y="24" width="11" height="11" fill="{colour}"/><text x="{x + 15:.0f}" y="34">{label}</text>'
        )
        x += 30.0 + 7.5 * len(label)
    body += [_stage(stage, 62.0 + at * (TALL + GAP), end, top) for at, stage in enumerate(thin)]
    return "".join(body), 64.0 + len(thin) * (TALL + GAP)


def _stage(stage: OverTime, y: float, end: float, top: float) -> str:
    """Stacked areas of one stage; allocation is a step function."""
    gib = 2.0**30
    xs = [LEFT + (WIDE - LEFT) * float(t) / end for t in stage.time]
    highest = int(stage.allocated.argmax())
    title = (
        f"stage {stage.stage}: {stage.allocated[highest] / gib:.1f} GiB allocated at most, after "
        f"{say.seconds(float(stage.time[highest]))}; {stage.reserved.max() / gib:.1f} reserved; "
        f"{stage.shown.max() / gib:.1f} in nvidia-smi"
    )

    def at(value: float) -> float:
        return y + TALL * (1.0 - value / top)

    out = [f'<text class="strong" x="{LEFT}" y="{y - 4:.1f}">{title}</text>']
    for share in (0.0, 0.5, 1.0):
        level = share * stage.capacity
        out.append(
            f'<line x1="{LEFT}" x2="{WIDE}" y1="{at(level):.1f}" y2="{at(level):.1f}" stroke="#dfe3e8"/>'
            f'<text x="{LEFT - 8}" y="{at(level) + 4:.1f}" text-anchor="end">{level / gib:.0f} GiB</text>'
        )
    below = [0.0] * len(xs)
    for part, name in enumerate(PARTS):
        above = [low + float(size) for low, size in zip(below, stage.parts[:, part], strict=True)]
        if max(high - low for high, low in zip(above, below, strict=True)) > 0.0:
            points = _steps(xs, [at(v) for v in above]) + _steps(xs, [at(v) for v in below])[::-1]
            out.append(f'<polygon points="{_text(points)}" fill="{COLOUR[name]}"><title>{name}</title></polygon>')
        below = above
    for values, colour, dash, name in ((stage.reserved, "#111827", "", "reserved"), (stage.shown, "#b91c1c", "5 3", "nvidia-smi")):
        line = _text(_steps(xs, [at(float(v)) for v in values]))
        out.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.4" stroke-dasharray="{dash}">'
            f"<title>{name}</title></polyline>"
        )
    out.append(
        f'<text x="{LEFT}" y="{y + TALL + 16:.1f}">0</text><text x="{WIDE}" y="{y + TALL + 16:.1f}" text-anchor="end">'
        f"{say.seconds(end)}</text>"
    )
    if (lack := stage.no_room) is not None:
        x = LEFT + (WIDE - LEFT) * lack.time / end
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + TALL:.1f}" stroke="#b91c1c" stroke-width="2"/>'
            f'<text x="{LEFT}" y="{y + TALL + 32:.1f}" style="fill:#b91c1c">{escape(no_room_sentence(stage))}</text>'
        )
    return "".join(out)


def no_room_sentence(stage: OverTime) -> str:
    """When a stage ran out of memory, for what, and what it held; empty where it did not."""
    lack = stage.no_room
    if lack is None:
        return ""
    held = ", ".join(f"{name} {say.size(size)}" for name, size in lack.held.items() if size >= 1e-3 * lack.reserved)
    return (
        f"Stage {stage.stage} runs out of memory in step {lack.step} after {say.seconds(lack.time)}: {say.size(lack.size)} for "
        f"{lack.content} find no room. Held then: {held}; {say.size(lack.reserved)} reserved of at most {say.size(lack.limit)}."
    )


def _steps(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """Corners of a step function."""
    points = [(xs[0], ys[0])]
    for x, y, before in zip(xs[1:], ys[1:], ys, strict=False):
        points += [(x, before), (x, y)]
    return points


def _text(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
