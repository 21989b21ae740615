"""The critical path: what the step's end was waiting for, back to its start."""

from __future__ import annotations

from windtunnel.engine import HopKind, Timeline
from windtunnel.predict.lower import Lowered
from windtunnel.predict.spans import NAMES


def critical_path(lowered: Lowered, timeline: Timeline) -> tuple[dict[str, object], ...]:
    """Runs of equal work on the path, in time order: stage, what, seconds, how many instances."""
    rows: list[dict[str, object]] = []
    for hop in timeline.path:
        rank, seconds = hop.rank, hop.seconds
        kind = "host" if hop.kind is HopKind.HOST else NAMES[lowered.labels[rank][hop.instance, 0]]
        if rows and rows[-1]["stage"] == rank and rows[-1]["what"] == kind:
            rows[-1]["seconds"] = float(str(rows[-1]["seconds"])) + seconds
            rows[-1]["count"] = int(str(rows[-1]["count"])) + 1
        else:
            rows.append({"stage": rank, "what": kind, "seconds": seconds, "count": 1})
    return tuple(rows)
