"""What is said of a watched run as a whole: its alarms with their times, its regular work with its price."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.fleet.findings.finding import Finding

MOST_TIMES = 4
"""Times of one alarm that are said; the rest are counted."""


def alarm_lines(alarms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each problem that an alarm told, in the order of its first alarm, with the times from which to which it lasted."""
    told: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for alarm in alarms:
        finding = alarm.get("finding") or {}
        key = (alarm["verdict"], *(tuple(alarm.get(name) or ()) for name in ("ranks", "hosts")), finding.get("part", ""))
        told.setdefault(key, []).append(alarm)
    return [_alarm_line(of_problem) for of_problem in told.values()]


def _alarm_line(alarms: Sequence[Mapping[str, Any]]) -> str:
    spans: list[list[float]] = []
    for alarm in alarms:
        if not alarm.get("cleared"):
            spans.append([float(alarm["seconds"])])
        elif spans:
            spans[-1].append(float(alarm["seconds"]))
    shown = [" to ".join(dict.fromkeys(_clock(moment) for moment in (span[0], span[-1]))) for span in spans[:MOST_TIMES]]
    more = f" and {len(spans) - MOST_TIMES} times more" if len(spans) > MOST_TIMES else ""
    raised = [alarm for alarm in alarms if not alarm.get("cleared")] or list(alarms)
    text = "; ".join(str(raised[-1]["text"]).splitlines())
    return f"{', '.join(shown)}{more} {raised[-1]['verdict']}: {text}".strip()


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def routine_lines(routine: Sequence[Finding]) -> list[str]:
    """Evaluations and saves of all ranks, with their price."""
    return [f"{one.text[:1].upper()}{one.text[1:]}" for one in routine]
