"""`nvidia-smi --query-gpu=timestamp,index,power.draw,… --format=csv[,nounits]`: watts and clocks of GPUs over time.

The header names the columns: `power.draw [W]`, `utilization.gpu [%]`. A cell that a GPU does not know is `[N/A]`, and is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.base.files import cells_of
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.meters import Meters
from windtunnel.formats.machines.hardware.node import gpu_of_name
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.spec import load_gpu

_POWER = ("power.draw", "power.draw.instant", "power.draw.average")
_IDENTITY = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index", "name", "gpu_name")
"""What tells one GPU from another, the surest first."""
_ALSO = ("utilization.gpu", "clocks.sm", "clocks.current.sm", "clocks.gr", "temperature.gpu", "memory.used", "power.limit")


def recognises(head: Head) -> bool:
    """A header with the power that a GPU draws."""
    return any(_is_header(_cells(line)) for line in head.lines[:50])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Mean watts and joules of each GPU. FileError for files without a reading."""
    meters = Meters()
    broken: list[str] = []
    for path in files:
        _take(LogLines(path, context.progress, broken), meters)
    if not meters.power:
        raise FileError(
            str(files[0]), "no reading of power.draw", "`nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv`"
        )
    facts = meters.facts()
    built: tuple[str, ...] = (f"{meters.readings} readings of {len(meters.power)} GPUs, {facts['mean_w_per_gpu']:g} W each",)
    if (limit := _limit_below(meters.names, facts["mean"].get("power.limit"))) is not None:
        built += (f"limited to {limit:g} W: --set cluster.node.gpu.power_cap_w={limit:g}",)
    broken.extend(meters.broken)
    return Reading("nvidia-smi-query", Content.SETTINGS, facts, facts, built, meters.ignored, meters.assumed, tuple(broken))


def _limit_below(devices: Collection[str], limit: float | None) -> float | None:
    """The power limit in watts where it is below that of the board as sold; None where it is not, or one is not known."""
    known = [gpu for name in devices if (gpu := gpu_of_name(name)) is not None]
    sold = load_gpu(known[0]).power_w if len(known) == 1 else None
    return limit if limit and sold and limit < sold else None


def _take(lines: LogLines, meters: Meters) -> None:
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


def _row(row: Mapping[str, str], meters: Meters) -> None:
    watts = next((value for name in _POWER if (value := _number(row.get(name))) is not None), None)
    if watts is None:
        meters.blank += 1
        return
    which = next((row[name] for name in _IDENTITY if name in row), "")
    if not meters.take(which, _milliseconds(row.get("timestamp")), watts):
        return
    if name := row.get("name") or row.get("gpu_name"):
        meters.device(name)
    for column in _ALSO:
        if (value := _number(row.get(column))) is not None:
            meters.also(column, value)


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
