"""Spans of pipeline stages on a canvas that can be moved and zoomed, and maps of replicas and stages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from markupsafe import Markup, escape

from windtunnel.draw.page.charts import key_line
from windtunnel.draw.page.frame import told_script
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Picture

Words = Callable[[str], str]


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
