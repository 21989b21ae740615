"""A map of all replicas and stages of unequal ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby

from windtunnel.predict.prediction import ReplicaClass, UnequalResult
from windtunnel.sheet import numbers as say


def replica_maps(result: UnequalResult) -> str:
    """SVG maps with a column per replica and a row per stage: compute time, and time spent waiting for slower ranks."""
    computing = _map(result, "computes", "#dc2626", lambda one: one.computing_s)
    waiting = _map(result, "waits for slower ranks", "#a16207", lambda one: one.waiting_s)
    return computing + waiting


def _map(result: UnequalResult, what: str, colour: str, of: Callable[[ReplicaClass], Sequence[float]]) -> str:
    values = [of(one) for one in result.classes]
    low, high = min(min(v) for v in values), max(max(v) for v in values)
    stages, replicas = len(values[0]), len(result.class_of_replica)
    left, wide = 70.0, 1160.0
    tall = max(6.0, min(22.0, 200.0 / stages))
    height = stages * tall
    out = [
        f'<p class="soft" style="margin-top:12px">{escape(what)}: {say.seconds(low)} (pale) to {say.seconds(high)}</p>'
        f'<svg viewBox="0 0 {wide:.0f} {height + 18:.0f}" role="img" aria-label="{escape(what)}, by replica and stage">'
    ]
    for stage in range(stages):
        if tall >= 11.0 or stage in (0, stages - 1):
            out.append(f'<text x="{left - 8:.0f}" y="{(stage + 0.5) * tall + 4:.1f}" text-anchor="end">stage {stage}</text>')
    scale = (wide - left) / replicas
    for number, run in groupby(enumerate(result.class_of_replica), key=lambda pair: pair[1]):
        places = [place for place, _ in run]
        x, w = left + places[0] * scale, len(places) * scale
        who = f"replica {places[0]}" if len(places) == 1 else f"replicas {places[0]} to {places[-1]}"
        for stage, value in enumerate(values[number]):
            share = (value - low) / (high - low) if high > low else 0.0
            out.append(
                f'<rect x="{x:.2f}" y="{stage * tall:.1f}" width="{max(w, 1.0):.2f}" height="{tall - 1:.1f}" fill="{colour}" '
                f'fill-opacity="{0.08 + 0.92 * share:.3f}"><title>{who}, stage {stage}: {say.seconds(value)}</title></rect>'
            )
    out.append(
        f'<text x="{left:.0f}" y="{height + 14:.0f}">replica 0</text>'
        f'<text x="{wide:.0f}" y="{height + 14:.0f}" text-anchor="end">replica {replicas - 1}</text></svg>'
    )
    return "".join(out)
