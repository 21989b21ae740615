"""Painters: one long time as lines below each other, with what happened in it as boxes; choices as lines through the values of
their fields, in parallel coordinates; spans of pipeline stages on a canvas that can be moved and zoomed, and maps of replicas
and stages; ranks of a watched run over time, and in the mesh in which one can be picked (fleet.js draws both). Memory over one
step, one drawing per stage: tensors stacked by content, reserved and total bytes; on a page, or as a file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from windtunnel.draw.page.charts import frame_svg, key_line
from windtunnel.draw.page.frame import part, told_script
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Picture

WIDE, TALL, LEFT = 1180.0, 30.0, 64.0


def lanes(picture: Picture, words: Callable[[str], str]) -> Markup:
    """Lines of equal time. `data`: `names` of the lines, `seconds` of each, `ground` (colour, what it says) of all the time,
    `spans` as [begin, end, colour, what it says] in seconds from the begin of the first line, and `legend` as [name, colour]."""
    names, each = picture.data["names"], picture.data["seconds"]
    scale, (ground, said) = (WIDE - LEFT) / each, picture.data["ground"]
    out = [f'<svg viewBox="0 0 {WIDE} {len(names) * (TALL + 8) + 4}" role="img" aria-label="{escape(words(picture.label))}">']
    for lane, name in enumerate(names):
        top = lane * (TALL + 8)
        out.append(f'<text x="0" y="{top + TALL / 2 + 4}">{escape(name)}</text>')
        out.append(_box(LEFT, top, WIDE - LEFT, ground, words(said)))
    for begin, end, colour, told in picture.data["spans"]:
        for lane in range(int(begin // each), min(len(names) - 1, int(end // each)) + 1):
            low, high = max(begin, lane * each), min(end, (lane + 1) * each)
            if high > low:
                wide = max(0.8, (high - low) * scale)
                out.append(_box(LEFT + (low - lane * each) * scale, lane * (TALL + 8), wide, colour, words(told)))
    key = key_line([(words(name), colour) for name, colour in picture.data["legend"]])
    return Markup("".join(out) + "</svg>") + key  # noqa: S704 -- every text inside went through escape()


def _box(x: float, y: float, wide: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{wide:.2f}" height="{TALL:g}" fill="{colour}"><title>{escape(title)}</title></rect>'
    )


WIDTH, HEIGHT, MARGIN = 900.0, 300.0, 40.0
LETTER, LINE = 7.0, 13.0
"""Width of a letter and height of a line of a head."""

Words = Callable[[str], str]


def parallel(picture: Picture, words: Words) -> Markup:
    """A line for each choice; the first is the best. `data`: `heads` of columns; `lines` as [heights (0 above to 1), colour, tip],
    of which the last height is to be small; `ticks` as [column, height, text]; `ends` of the last column; a `legend`."""
    data = picture.data
    heads = [words(head) for head in data["heads"]]
    xs = [MARGIN + place * (WIDTH - 2.5 * MARGIN) / (len(heads) - 1) for place in range(len(heads))]

    room = int((xs[1] - xs[0]) / LETTER)
    told = [textwrap.wrap(head, max(4, room), break_long_words=False) for head in heads]
    above = LINE * (max(map(len, told)) - 1)

    def y(height: float) -> float:
        return above + 30.0 + height * (HEIGHT - 60.0)

    out = []
    for number, (heights, colour, tip) in reversed(list(enumerate(data["lines"]))):
        points = " ".join(f"{x:.1f},{y(height):.1f}" for x, height in zip(xs, heights, strict=True))
        look = f'stroke="{colour}" stroke-opacity="{0.6 - 0.5 * heights[-1]:.2f}"'
        style = look if number else 'stroke="var(--good)" stroke-width="2.5"'
        out.append(f'<polyline points="{points}" fill="none" {style}><title>{escape(words(tip))}</title></polyline>')
    out += [
        f'<text x="{x:.1f}" y="{above + 14.0 - LINE * (len(lines) - 1 - number):.1f}" text-anchor="middle">{escape(line)}</text>'
        for x, lines in zip(xs, told, strict=True)
        for number, line in enumerate(lines)
    ]
    out += [
        f'<text x="{xs[column] + 4:.1f}" y="{y(height) + 4:.1f}" class="tick">{escape(text)}</text>'
        for column, height, text in data["ticks"]
    ]
    out += [
        f'<text x="{xs[-1] + 4:.1f}" y="{place}">{escape(text)}</text>'
        for place, text in zip((above + 34.0, above + HEIGHT - 26.0), data["ends"], strict=True)
    ]
    drawn = frame_svg("".join(out), above + HEIGHT, words(picture.label), wide=WIDTH)
    return drawn + (key_line([(name, colour) for name, colour in data["legend"]]) if data["legend"] else Markup())


def pipeline(picture: Picture, words: Words) -> Markup:
    """A row for each stage. `data`: `stages`, `spans` as [row, begin and end (µs), kind, micro batch or -1, whether in the thin
    lane, chunk or -1, number of its name], `names`, `end` (µs), `chunks`, `kinds` as [name, colour], `used` kinds, `about`."""
    data = picture.data
    kinds = [(words(name), colour) for name, colour in data["kinds"]]
    told = {name: data[name] for name in ("stages", "chunks", "spans", "names", "end")}
    told |= {"kinds": [{"name": name, "colour": colour} for name, colour in kinds], "stage": words("stage")}
    return Markup(
        '<div class="row" style="justify-content:flex-end"><button id="reset" type="button" hidden>{}</button></div>'
        '<div class="picture"><canvas id="pipeline" tabindex="0" role="img" aria-label="{}"></canvas><div id="tip"></div></div>{}{}'
    ).format(
        words("whole step"), words(picture.label), told_script("pipeline-data", told),
        key_line([*(kinds[number] for number in data["used"]), (words("idle"), "var(--idle)")], words(data["about"])),
    )  # fmt: skip


def replicas(picture: Picture, words: Words) -> Markup:
    """A column for each replica and a row for each stage, in shades of a colour. `data`: `groups` as values (s) of each stage, and
    `group_of` each replica."""
    groups, group_of, colour = picture.data["groups"], picture.data["group_of"], picture.data["colour"]
    low, high = min(min(values) for values in groups), max(max(values) for values in groups)
    stages, left, wide = len(groups[0]), 70.0, 1160.0
    tall = max(6.0, min(22.0, 200.0 / stages))
    height = stages * tall
    out = [f'<svg viewBox="0 0 {wide:.0f} {height + 18:.0f}" role="img" aria-label="{escape(words(picture.label))}">']
    stage_word, replica_word = words("stage"), words("replica")
    for stage in range(stages):
        if tall >= 11.0 or stage in (0, stages - 1):
            y = (stage + 0.5) * tall + 4
            out.append(f'<text x="{left - 8:.0f}" y="{y:.1f}" text-anchor="end">{escape(stage_word)} {stage}</text>')
    scale = (wide - left) / len(group_of)
    for number, run in groupby(enumerate(group_of), key=lambda pair: pair[1]):
        places = [place for place, _ in run]
        x, w = left + places[0] * scale, len(places) * scale
        who = f"{replica_word} {places[0]}" + ("" if len(places) == 1 else f" … {places[-1]}")
        for stage, value in enumerate(groups[number]):
            share = (value - low) / (high - low) if high > low else 0.0
            out.append(
                f'<rect x="{x:.2f}" y="{stage * tall:.1f}" width="{max(w, 1.0):.2f}" height="{tall - 1:.1f}" fill="{colour}" '
                f'fill-opacity="{0.08 + 0.92 * share:.3f}"><title>{escape(who)}, {escape(stage_word)} {stage}: '
                f"{say.seconds(value)}</title></rect>"
            )
    out.append(
        f'<text x="{left:.0f}" y="{height + 14:.0f}">{escape(replica_word)} 0</text><text x="{wide:.0f}" y="{height + 14:.0f}" '
        f'text-anchor="end">{escape(replica_word)} {len(group_of) - 1}</text></svg>'
    )
    told = Markup('<p class="soft" style="margin-top:12px">{}</p>').format(words(picture.data["about"]))
    return told + Markup("".join(out))  # noqa: S704 -- every text inside went through escape()


ABOUT = (
    "blue: shorter than its equals · pale: as long · red: longer (full colour: 30 % and more) · empty: no record. "
    "A click picks the rank below."
)

WORDS = (
    "step {number}",
    "One row a machine: its slowest rank.",
    "The {shown} slowest of {all} machines.",
    "The {shown} slowest of {all} ranks.",
    "no record",
    "{excess}; usual {usual}",
    "unknown",
    "rank {rank} on {machine}, from step {step}: {told}",
    "an unknown machine",
    "Rank {rank} on {machine}",
    ", own work {excess} against its equals",
    "{axis} {place} of {count}: ",
    "It waits for:",
    "It waits for nobody.",
    " {ms} ms a step",
    "It hangs, waiting for:",
    " in {call}",
    "What flows, a step:",
    "{name} of {ranks} ranks: {calls} calls, {bytes}, {ms} ms",
    "own work",
    "gaps",
    "outside",
    "no core",
    "data",
    "forward",
    "backward",
    "optimizer",
)
"""What fleet.js says, and the names of its layers."""


def heat(picture: Picture, words: Words) -> Markup:
    """The heat map. `data`: `ranks`, `hosts`, the `host` of each rank, `steps` of columns, `layers` of cells, the `mesh`, `waits`,
    `groups` and `hang` of ranks, those that are `named`, and the `excess` of each."""
    return part("heat", words("What is shown"), words(ABOUT)) + told_script(
        "data", {**picture.data, "words": {text: words(text) for text in WORDS}}
    )


def mesh(_: Picture, words: Words) -> Markup:
    """The mesh, of the data of the heat map."""
    return part("mesh", words("Rank"))


_EDGE, _ACROSS, _HIGH, _GAP = 70.0, 1160.0, 190.0, 62.0
_STYLE = "text{font:12px system-ui,sans-serif;fill:#5b6472}.strong{fill:#111827;font-weight:600}"
_THEMED = (("#111827", "var(--ink)"), ("#b91c1c", "var(--bad)"), ("#dfe3e8", "var(--line)"))
"""Colours of a picture alone, and of the same on a page in any theme."""


def memory(picture: Picture, words: Words) -> Markup:
    """The drawing on a page. `data`: its `title`, `parts` as [name, colour], and `stages` with `title`, `time` (s), `parts`,
    `reserved` and `shown` (bytes at these times), `capacity`, and where it has no room `lacks` in words and `lack_time`."""
    inside, height = _drawing(picture.data, words)
    for fixed, themed in _THEMED:
        inside = inside.replace(fixed, themed)
    return frame_svg(inside, height, words(picture.label), "memory", _ACROSS + 20.0)


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
    x = _EDGE
    for name, colour in (*data["parts"], ("reserved", "#111827"), ("nvidia-smi", "#b91c1c")):
        label = words(name)
        body.append(
            f'<rect x="{x:.0f}" y="24" width="11" height="11" fill="{colour}"/><text x="{x + 15:.0f}" y="34">{escape(label)}</text>'
        )
        x += 30.0 + 7.5 * len(label)
    body += [_stage(stage, data["parts"], 62.0 + n * (_HIGH + _GAP), (end, top), words) for n, stage in enumerate(stages)]
    return "".join(body), 64.0 + len(stages) * (_HIGH + _GAP)


def _stage(
    stage: Mapping[str, Any], parts: Sequence[tuple[str, str]], y: float, most: tuple[float, float], words: Words
) -> str:  # fmt: skip
    """Stacked areas of one stage; allocation is a step function."""
    gib, (end, top) = 2.0**30, most
    xs = [_EDGE + (_ACROSS - _EDGE) * moment / end for moment in stage["time"]]

    def place(value: float) -> float:
        return y + _HIGH * (1.0 - value / top)

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
        x = _EDGE + (_ACROSS - _EDGE) * stage["lack_time"] / end
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
