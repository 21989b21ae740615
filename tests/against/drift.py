"""What differs between two predictions of the same jobs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Line = Mapping[str, Any]
WORST = 5
"""Jobs that are named for each figure."""


@dataclass
class Drift:
    """`lost`: jobs that were predicted and are not any more, with why; `won`: the other way round; `only_old`, `only_new`: jobs of
    one catalogue; `changed`: figure → relative change by job, where there is any."""

    compared: int = 0
    both_refused: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    won: list[str] = field(default_factory=list)
    only_old: list[str] = field(default_factory=list)
    only_new: list[str] = field(default_factory=list)
    changed: dict[str, dict[str, float]] = field(default_factory=dict)


def drift_of(old: Mapping[str, Line], new: Mapping[str, Line]) -> Drift:
    """`old`, `new`: job → its line of `predicting.py`."""
    drift = Drift(only_old=sorted(old.keys() - new.keys()), only_new=sorted(new.keys() - old.keys()))
    for job in sorted(old.keys() & new.keys()):
        was, now = old[job]["outcome"] == "ok", new[job]["outcome"] == "ok"
        if was and now:
            drift.compared += 1
            for name, change in _changes(old[job]["figures"], new[job]["figures"]):
                drift.changed.setdefault(name, {})[job] = change
        elif was or new[job]["outcome"] == "crashed":
            drift.lost[job] = f"{new[job]['outcome']}: {new[job]['why']}"
        elif now:
            drift.won.append(job)
        else:
            drift.both_refused += 1
    return drift


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _changes(was, now, f"{name}: ")
        elif was != now:
            numbers = isinstance(was, (int, float)) and isinstance(now, (int, float)) and was
            yield prefix + name, now / was - 1.0 if numbers else math.inf


def report(drift: Drift) -> str:
    """The drift as lines of text."""
    lines = [f"{drift.compared} jobs predicted by both, {drift.both_refused} refused by both"]
    lines += [f"in the old catalogue only: {', '.join(drift.only_old)}"] if drift.only_old else []
    lines += [f"in the new catalogue only: {', '.join(drift.only_new)}"] if drift.only_new else []
    lines += [f"predicted before, not any more: {len(drift.lost)}"] if drift.lost else []
    lines += [f"  {job}: {why}" for job, why in drift.lost.items()]
    lines += [f"refused before, predicted now: {len(drift.won)}", *(f"  {job}" for job in drift.won)] if drift.won else []
    if not drift.changed:
        return "\n".join([*lines, "no figure of any job has changed"])
    lines.append(f"{'figure':40} {'jobs':>6} {'median':>10} {'largest':>10}  jobs that changed most")
    for name, changes in sorted(drift.changed.items(), key=lambda one: -len(one[1])):
        worst = sorted(changes, key=lambda job: -abs(changes[job]))
        median = statistics.median(abs(change) for change in changes.values())
        told = f"{median:>10.2%} {changes[worst[0]]:>+10.2%}  {', '.join(worst[:WORST])}"
        lines.append(f"{name[:40]:40} {len(changes):>6} {told}")
    return "\n".join(lines)
