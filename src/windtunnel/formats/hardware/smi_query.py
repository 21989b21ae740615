"""`nvidia-smi --query-gpu=timestamp,index,power.draw,… --format=csv[,nounits]`: watts and clocks of GPUs over time.

The header names the columns: `power.draw [W]`, `utilization.gpu [%]`. A cell that a GPU does not know is `[N/A]`, and is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.text_files import cells_of
from windtunnel.formats.head import Head
from windtunnel.formats.logs.power import PowerSource
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text_lines import LogLines

_POWER = ("power.draw", "power.draw.instant", "power.draw.average")
_IDENTITY = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index", "name", "gpu_name")
"""What tells one GPU from another, the surest first."""
_ALSO = ("utilization.gpu", "clocks.sm", "clocks.current.sm", "clocks.gr", "temperature.gpu", "memory.used", "power.limit")
_KEPT = 2_000_000
"""Readings that are kept at most."""


@dataclass
class _Meters:
    """What a file says: readings by GPU as (ms since 1970 or NaN, watts), and sums of other columns."""

    power: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    other: dict[str, tuple[float, int]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    readings: int = 0
    blank: int = 0
    untimed: int = 0
    bad: int = 0
    dropped: int = 0


def recognises(head: Head) -> bool:
    """A header with the power that a GPU draws."""
    return any(_is_header(_cells(line)) for line in head.lines[:50])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Mean watts and joules of each GPU. FileError for files without a reading."""
    meters = _Meters()
    broken: list[str] = []
    for path in files:
        lines = LogLines(path, context.progress)
        _take(lines, meters)
        broken.extend(lines.broken)
    if not meters.power:
        raise FileError(
            str(files[0]), "no reading of power.draw", "`nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv`"
        )
    for count, what in ((meters.bad, "rows that are cut off"), (meters.dropped, f"readings beyond the first {_KEPT}")):
        if count:
            broken.append(f"{count} {what}")
    facts = _facts(meters)
    built = (f"{meters.readings} readings of {len(meters.power)} GPUs, {facts['mean_w_per_gpu']:g} W each",)
    assumed = [f"{meters.untimed} readings without a time count for means and not for joules"] if meters.untimed else []
    ignored = (f"{meters.blank} cells without a number",) if meters.blank else ()
    return Reading("nvidia-smi-query", Content.SETTINGS, facts, facts, built, ignored, tuple(assumed), tuple(broken))


def _take(lines: LogLines, meters: _Meters) -> None:
    names: list[str] = []
    for text in lines:
        if not text.strip():
            continue
        cells = _cells(text)
        if _is_header(cells):
            names = [cell.split(" [")[0] for cell in cells]
            continue
        if not names:
            continue
        if len(cells) != len(names):
            meters.bad += 1
            continue
        _row(dict(zip(names, cells, strict=True)), meters)


def _row(row: Mapping[str, str], meters: _Meters) -> None:
    watts = next((value for name in _POWER if (value := _number(row.get(name))) is not None), None)
    if watts is None:
        meters.blank += 1
        return
    if meters.readings >= _KEPT:
        meters.dropped += 1
        return
    meters.readings += 1
    which = next((row[name] for name in _IDENTITY if name in row), "")
    if (name := row.get("name") or row.get("gpu_name")) and len(meters.names) < 100:
        meters.names.add(name)
    time = _milliseconds(row.get("timestamp"))
    meters.untimed += time is None
    meters.power.setdefault(which, []).append((math.nan if time is None else time, watts))
    for column in _ALSO:
        if (value := _number(row.get(column))) is not None:
            total, count = meters.other.get(column, (0.0, 0))
            meters.other[column] = total + value, count + 1


def _facts(meters: _Meters) -> dict[str, Any]:
    by_gpu: dict[str, Any] = {}
    for which, readings in sorted(meters.power.items()):
        watts = [value for _, value in readings]
        own = {"readings": len(watts), "mean_w": round(sum(watts) / len(watts), 2), "min_w": min(watts), "max_w": max(watts)}
        timed = PowerSource()
        for time, value in sorted(reading for reading in readings if not math.isnan(reading[0])):
            timed.take("power", time, value)
        if timed.readings > 1:
            own |= {"seconds": round((timed.times[-1] - timed.times[0]) * 1e-3, 3), "joules": round(timed.energy(), 1)}
        by_gpu[which] = own
    means = [own["mean_w"] for own in by_gpu.values()]
    facts: dict[str, Any] = {"gpus": len(by_gpu), "readings": meters.readings, "devices": sorted(meters.names)}
    facts |= {"mean_w_per_gpu": round(sum(means) / len(means), 2), "mean_w": round(sum(means), 2)}
    joules = [own["joules"] for own in by_gpu.values() if "joules" in own]
    if joules:
        facts["joules"] = round(sum(joules), 1)
    facts["mean"] = {name: round(total / count, 2) for name, (total, count) in meters.other.items()}
    return facts | {"by_gpu": by_gpu}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in cells_of(line)]


def _is_header(cells: Sequence[str]) -> bool:
    return len(cells) > 1 and any(cell.split(" [")[0] in _POWER for cell in cells)


def _number(cell: str | None) -> float | None:
    """The number before a unit; None for `[N/A]` and its likes."""
    try:
        value = float((cell or "").split(" ")[0])
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _milliseconds(cell: str | None) -> float | None:
    """Milliseconds since 1970 of `2024/05/06 07:08:09.123`, or of an ISO time; None where the cell is no time."""
    try:
        read = datetime.fromisoformat((cell or "").replace("/", "-"))
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1e3
    except (ValueError, OverflowError):
        return None
