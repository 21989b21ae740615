"""The pipeline picture's data and the memory drawings of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from windtunnel.memory import StageMemory
from windtunnel.predict.answer.timeline import HOST_LAUNCH
from windtunnel.predict.prediction import Prediction, Span
from windtunnel.report.timeline.tracks import direction, is_receive, is_send
from windtunnel.report.words.parts import (
    COLOUR,
    COMMUNICATION,
    MEMORY_COLOUR,
    MEMORY_PARTS,
    OFFLOAD,
    OPTIMIZER,
    OTHER,
    RECOMPUTE,
    group_of,
)
from windtunnel.sheet import numbers as say

KINDS = (
    ("forward", "#3b82f6"),
    ("backward", "#16a34a"),
    ("recompute", COLOUR[RECOMPUTE]),
    ("optimizer", COLOUR[OPTIMIZER]),
    ("communication", COLOUR[COMMUNICATION]),
    ("other", COLOUR[OTHER]),
)
MOST_SPANS = 16_000
"""Blocks drawn at most: the page stays below 1 MB; stages are left out evenly where there are more, and the page says so."""


def kind_of(span: Span) -> int:
    """Index into `KINDS`."""
    if is_send(span):
        return 4
    way = direction(span)
    if way:
        return 0 if way == "forward" else 1
    group = group_of(span.category)
    kind = {RECOMPUTE: 2, OPTIMIZER: 3, COMMUNICATION: 4, OFFLOAD: 4}.get(group)
    return 5 if kind is None else kind


def pipeline(prediction: Prediction) -> dict[str, Any] | None:
    """What the page's script draws: [row, start µs, end µs, kind, micro batch, thin lane, chunk, name]; None without a timeline."""
    # a receive repeats its send, with the wait before it; launches of the host run ahead of the passes that they would cover
    shown = [s for s in prediction.timeline if not is_receive(s) and s.stream != HOST_LAUNCH]
    if not shown:
        return None
    stages = _drawn_stages(shown)
    row = {stage: i for i, stage in enumerate(stages)}
    names: dict[str, int] = {}
    chunks = 1 + max(s.chunk for s in shown)
    spans = []
    for s in shown:
        if s.stage in row:
            kind = kind_of(s)
            spans.append(
                [
                    row[s.stage],
                    round(s.start * 1e6, 1),
                    round(s.end * 1e6, 1),
                    kind,
                    s.micro_batch,
                    int(kind == 4),
                    s.chunk if chunks > 1 else -1,
                    names.setdefault(s.name, len(names)),
                ]
            )
    return {
        "stages": stages,
        "all_stages": len({s.stage for s in shown}),
        "chunks": chunks,
        "spans": spans,
        "names": list(names),
        "end": round(max(s.end for s in shown) * 1e6, 1) or 1.0,
        "kinds": [{"name": name, "colour": colour} for name, colour in KINDS],
        "used": sorted({s[3] for s in spans}),
    }


def _drawn_stages(spans: Sequence[Span]) -> list[int]:
    stages = sorted({s.stage for s in spans})
    keep = max(2, int(MOST_SPANS * len(stages) / max(1, len(spans))))
    if keep >= len(stages):
        return stages
    return [stages[round(i * (len(stages) - 1) / (keep - 1))] for i in range(keep)]


def memory_bars(stages: Sequence[StageMemory]) -> str:
    """SVG: a stacked bar a stage, the capacity as a line."""
    gib, left, wide, tall = 2.0**30, 70.0, 1160.0, 30.0
    full = max(max(s.total, s.capacity) for s in stages) * 1.02 or 1.0
    right = 150.0
    scale = (wide - left - right) / full
    height = tall * len(stages) + 26
    out = [f'<svg viewBox="0 0 {wide:.0f} {height:.0f}" role="img" aria-label="Memory by stage">']
    for i, stage in enumerate(stages):
        y, x = i * tall + 4, left
        out.append(f'<text x="{left - 8:.0f}" y="{y + 15:.0f}" text-anchor="end">stage {stage.stage}</text>')
        for part in MEMORY_PARTS:
            size = float(getattr(stage, part))
            if size <= 0.0:
                continue
            w = size * scale
            out.append(
                f'<rect x="{x:.2f}" y="{y:.1f}" width="{w:.2f}" height="{tall - 8:.0f}" fill="{MEMORY_COLOUR[part]}">'
                f"<title>{part}: {say.size(size)}</title></rect>"
            )
            if w > 58:
                out.append(
                    f'<text x="{x + w / 2:.1f}" y="{y + 15:.1f}" text-anchor="middle" style="fill:#fff">{size / gib:.1f}</text>'
                )
            x += w
        note = f"{stage.total / gib:.1f} GiB" + ("" if stage.fits else f", {say.size(stage.missing)} short")
        x = max(x, left + stage.capacity * scale)  # beyond the capacity line, which is drawn last
        colour = "" if stage.fits else ' style="fill:var(--bad);font-weight:600"'
        out.append(f'<text class="strong" x="{x + 8:.1f}" y="{y + 15:.1f}"{colour}>{escape(note)}</text>')
    for capacity in sorted({s.capacity for s in stages}):
        x = left + capacity * scale
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 20:.0f}" stroke="var(--bad)" stroke-width="2" '
            'stroke-dasharray="5 3"/>'
        )
        out.append(f'<text x="{x:.1f}" y="{height - 6:.0f}" text-anchor="middle">capacity {capacity / gib:.0f} GiB</text>')
    return "".join(out) + "</svg>"


def memory_curves(prediction: Prediction) -> str:
    """SVG: allocated memory over the step, a line a stage; empty where no stage has a curve."""
    drawn = [s for s in prediction.memory if len(s.curve) > 1]
    if len(drawn) > 4:
        drawn = [drawn[0], *sorted(drawn[1:-1], key=lambda s: -s.total)[:2], drawn[-1]]
    if not drawn:
        return ""
    gib, left, wide, tall = 2.0**30, 70.0, 1160.0, 190.0
    end = max(t for s in drawn for t, _ in s.curve) or 1.0
    top = max(max(b for s in drawn for _, b in s.curve), max(s.capacity for s in drawn)) * 1.05
    colours = ("#3b82f6", "#f97316", "#14b8a6", "#8b5cf6")
    out = [f'<svg viewBox="0 0 {wide:.0f} {tall + 30:.0f}" role="img" aria-label="Allocated memory over the step">']
    for share in (0.0, 0.5, 1.0):
        y = tall * (1 - share / 1.05)
        size = share * top / 1.05 / gib
        out.append(
            f'<line x1="{left}" x2="{wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{size:.0f} GiB</text>'
        )
    for colour, stage in zip(colours, drawn, strict=False):
        points, last = [], None
        for t, b in _thin(stage.curve, 600):
            x, y = left + (wide - left) * t / end, tall * (1 - b / top)
            if last is not None:
                points.append(f"{x:.1f},{last:.1f}")  # allocation is a step function
            points.append(f"{x:.1f},{y:.1f}")
            last = y
        out.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5">'
            f"<title>stage {stage.stage}</title></polyline>"
        )
    out.append(
        f'<text x="{left}" y="{tall + 20}">0</text>'
        f'<text x="{wide}" y="{tall + 20}" text-anchor="end">{say.seconds(end)}</text></svg>'
    )
    key = "".join(f'<span><i style="background:{c}"></i>stage {s.stage}</span>' for c, s in zip(colours, drawn, strict=False))
    return "".join(out) + f'<div class="key">{key}</div>'


def _thin(curve: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most about `most` points, the peak of every bucket kept."""
    if len(curve) <= most:
        return list(curve)
    step = -(-len(curve) // most)
    return [max(curve[i : i + step], key=lambda point: point[1]) for i in range(0, len(curve), step)]
