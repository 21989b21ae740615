"""Readings of GPUs over time as monitors of the vendors print them: watts and joules of each GPU, means of all else.

Power readings over time: of MLPerf's power logs, and of `nvidia-smi --query-gpu=…power.draw… --format=csv`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field

_KEPT = 2_000_000
"""Readings that are kept at most."""
_NAMES = 100


@dataclass
class Meters:
    """What a file says: readings by GPU as (ms since 1970 or NaN, watts), and sums of other columns."""

    power: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    other: dict[str, tuple[float, int]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    readings: int = 0
    blank: int = 0
    untimed: int = 0
    bad: int = 0
    dropped: int = 0

    def take(self, gpu: str, milliseconds: float | None, watts: float) -> bool:
        """A reading of power; False for one beyond those that are kept."""
        if self.readings >= _KEPT:
            self.dropped += 1
            return False
        self.readings += 1
        self.untimed += milliseconds is None
        self.power.setdefault(gpu, []).append((math.nan if milliseconds is None else milliseconds, watts))
        return True

    def also(self, column: str, value: float) -> None:
        """A number of another column."""
        total, count = self.other.get(column, (0.0, 0))
        self.other[column] = total + value, count + 1

    def device(self, name: str) -> None:
        """What a GPU is called."""
        if len(self.names) < _NAMES:
            self.names.add(name)

    def facts(self) -> dict[str, Any]:
        """Means of each GPU and of all, and joules where times are known."""
        by_gpu = {which: _of_gpu(readings) for which, readings in sorted(self.power.items())}
        means = [own["mean_w"] for own in by_gpu.values()]
        facts: dict[str, Any] = {"gpus": len(by_gpu), "readings": self.readings, "devices": sorted(self.names)}
        if means:
            facts |= {"mean_w_per_gpu": round(sum(means) / len(means), 2), "mean_w": round(sum(means), 2)}
        joules = [own["joules"] for own in by_gpu.values() if "joules" in own]
        if joules:
            facts["joules"] = round(sum(joules), 1)
        facts["mean"] = {name: round(total / count, 2) for name, (total, count) in self.other.items()}
        return facts | {"by_gpu": by_gpu}

    @property
    def broken(self) -> list[str]:
        """What could not be read, with counts."""
        counts = ((self.bad, "rows that are cut off"), (self.dropped, f"readings beyond the first {_KEPT}"))
        return [f"{count} {what}" for count, what in counts if count]

    @property
    def ignored(self) -> tuple[str, ...]:
        """Cells that say nothing."""
        return (f"{self.blank} cells without a number",) if self.blank else ()

    @property
    def assumed(self) -> tuple[str, ...]:
        """What is made of readings without a time."""
        return (f"{self.untimed} readings without a time count for means and not for joules",) if self.untimed else ()


def _of_gpu(readings: Sequence[tuple[float, float]]) -> dict[str, Any]:
    watts = [value for _, value in readings]
    own = {"readings": len(watts), "mean_w": round(sum(watts) / len(watts), 2), "min_w": min(watts), "max_w": max(watts)}
    timed = PowerSource()
    for time, value in sorted(reading for reading in readings if not math.isnan(reading[0])):
        timed.take("power", time, value)
    if timed.readings > 1:
        own |= {"seconds": round((timed.times[-1] - timed.times[0]) * 1e-3, 3), "joules": round(timed.energy(), 1)}
    return own


@dataclass
class PowerSource:
    """Readings of one meter: ms since 1970, watts."""

    times: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    conversion: set[float] = field(default_factory=set)

    @property
    def readings(self) -> int:
        """Readings so far."""
        return len(self.watts)

    def take(self, key: str, time: float, value: float) -> None:
        """A reading, or the meter's conversion efficiency."""
        if key == "conversion_eff":
            self.conversion.add(value)
        elif abs(value) < 1e12 and abs(time) < 1e16:
            self.times.append(time)
            self.watts.append(value)

    def energy(self) -> float:
        """Joules between the first and the last reading, by the trapezoid rule."""
        seconds = np.array(self.times) * 1e-3
        watts = np.array(self.watts)
        return float(((watts[1:] + watts[:-1]) * 0.5 * np.diff(seconds)).sum())

    def facts(self, window: tuple[int, int] | None) -> dict[str, Any]:
        """Counts and means; `window`: ms of the run's begin and end, if they are known."""
        watts, times = np.array(self.watts), np.array(self.times)
        facts: dict[str, Any] = {
            "readings": len(watts), "start_ms": int(times[0]), "end_ms": int(times[-1]), "min_w": float(watts.min()),
            "max_w": float(watts.max()), "mean_w": round(float(watts.mean()), 1), "trapezoid_energy_J": round(self.energy()),
            "conversion_eff": sorted(self.conversion),
        }  # fmt: skip
        if len(watts) > 1:
            facts["interval_s"] = round(float(times[-1] - times[0]) / 1e3 / (len(watts) - 1), 3)
        if window is not None:
            inside = watts[(times >= window[0]) & (times <= window[1])]
            facts["in_run_window_readings"] = len(inside)
            facts["mean_w_in_run"] = round(float(inside.mean()), 1) if len(inside) else None
        return facts
