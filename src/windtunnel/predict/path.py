"""The critical path: what the step's end was waiting for, back to its start."""

from __future__ import annotations

from windtunnel.engine import Hop, HopKind, Timeline
from windtunnel.predict.lower import Lowered
from windtunnel.predict.spans import NAMES


def critical_path(lowered: Lowered, timeline: Timeline) -> tuple[dict[str, object], ...]:
    """Stretches of the path on one stage, in time order: stage, seconds, how many instances, and `what` they were, longest first.

    Seconds add up to the step; `parts` splits them by what they went to.
    """
    rows: list[dict[str, object]] = []
    parts: dict[str, float] = {}
    count = 0
    for hop, following in zip(timeline.path, (*timeline.path[1:], None), strict=True):
        what = _what(lowered, hop)
        parts[what] = parts.get(what, 0.0) + hop.seconds
        count += 1
        if following is None or following.rank != hop.rank:
            longest = sorted(parts, key=lambda name: (-parts[name], name))
            seconds = sum(parts.values())
            row: dict[str, object] = {
                "stage": hop.rank % lowered.stages,
                "what": ", ".join(longest),
                "seconds": seconds,
                "count": count,
                "parts": parts,
            }
            if len(lowered.pipelines) > 1:
                row["replicas"] = lowered.pipelines[hop.rank // lowered.stages]
            rows.append(row)
            parts, count = {}, 0
    return tuple(rows)


def _what(lowered: Lowered, hop: Hop) -> str:
    return "host" if hop.kind is HopKind.HOST else NAMES[lowered.labels[hop.rank][hop.instance, 0]]
