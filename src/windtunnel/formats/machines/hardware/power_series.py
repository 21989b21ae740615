"""Power readings over time: of MLPerf's power logs, and of `nvidia-smi --query-gpu=…power.draw… --format=csv`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


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
