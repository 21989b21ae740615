"""A rate of requests that changes over the day: stated by a file or as a sinusoid, and arrivals drawn from it."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError

HOUR = 3600.0
DAY = 24.0 * HOUR
POINTS = 289
"""Moments of a sinusoid's day: one in five minutes."""


@dataclass(frozen=True)
class RateCurve:
    """Requests a second over time, linear between: `times` in seconds from 0, rising, and `rates`."""

    times: Floats
    rates: Floats

    @property
    def mean(self) -> float:
        """The mean rate."""
        return float(np.trapezoid(self.rates, self.times)) / self.span

    @property
    def peak(self) -> float:
        """The highest rate."""
        return float(self.rates.max())

    @property
    def span(self) -> float:
        """Seconds of the curve."""
        return float(self.times[-1])

    def scale_to(self, mean: float) -> RateCurve:
        """The same form with this mean rate."""
        return RateCurve(self.times, self.rates * (mean / self.mean))

    def over_seconds(self, seconds: float) -> RateCurve:
        """The curve over so many seconds, again and again."""
        count = math.ceil(seconds / self.span)
        times = np.concatenate([self.times + turn * self.span for turn in range(count)])
        rates = np.tile(self.rates, count)
        kept = times < seconds
        last = float(np.interp(seconds, times, rates))
        return RateCurve(np.append(times[kept], seconds), np.append(rates[kept], last))

    def arrivals(self, draws: np.random.Generator, burstiness: float = 1.0) -> Floats:
        """Moments of a stream with this rate (s), whose gaps are as `load.drawn_load` has them with `burstiness`: 1 is Poisson."""
        grown = np.concatenate([[0.0], np.cumsum(np.diff(self.times) * (self.rates[1:] + self.rates[:-1]) / 2.0)])
        if burstiness != 1.0:
            most = math.ceil(grown[-1] + 10.0 * math.sqrt((grown[-1] + 1.0) / burstiness) + 10.0 / burstiness)
            passed = np.cumsum(draws.gamma(burstiness, 1.0 / burstiness, most))
            return np.asarray(np.interp(passed[passed < grown[-1]], grown, self.times), np.float64)
        count = int(draws.poisson(grown[-1]))
        return np.asarray(np.interp(np.sort(draws.random(count)) * grown[-1], grown, self.times), np.float64)


def read_curve(text: str, mean: float | None) -> RateCurve:
    """A curve of `swing=0.6` (a day's sinusoid about the mean, lowest at its begin, which needs `mean`), or of a CSV file: a column
    of seconds, or of hours under the name `hour`, and one of requests a second. `mean`: the rate to which it
    is scaled. SpecError or FileError for a text that is neither."""
    name, _, value = text.partition("=")
    if name.strip() == "swing":
        swing = _number(value)
        if not 0.0 <= swing <= 1.0:
            raise SpecError("curve", text, "a swing from 0 to 1, such as swing=0.6")
        if mean is None:
            raise SpecError("curve", text, "a mean rate beside it", "Write --rate 20.")
        times = np.linspace(0.0, DAY, POINTS)
        return RateCurve(times, mean * (1.0 - swing * np.cos(2.0 * np.pi * times / DAY)))
    found = _read_rows(text)
    return found if mean is None else found.scale_to(mean)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _read_rows(name: str) -> RateCurve:
    wanted = "a CSV file with a column of seconds (or `hour`) and one of requests a second, or swing=0.6"
    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) >= 2]
    except (OSError, ValueError, csv.Error) as error:
        raise FileError("curve", name, wanted, f"{error}.") from error
    head = rows[0][0].strip().lower() if rows and math.isnan(_number(rows[0][0])) else ""
    values = np.array([(_number(row[0]), _number(row[1])) for row in (rows[1:] if head else rows)], np.float64).reshape(-1, 2)
    if len(values) < 2 or not np.isfinite(values).all() or (np.diff(values[:, 0]) <= 0.0).any() or (values[:, 1] < 0.0).any():
        raise FileError("curve", name, wanted, "Moments have to rise, and rates may not be negative.")
    times = (values[:, 0] - values[0, 0]) * (HOUR if head.startswith("hour") else 1.0)
    if not values[:, 1].max() > 0.0:
        raise FileError("curve", name, "a rate above 0")
    return RateCurve(times, values[:, 1])
