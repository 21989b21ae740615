"""`nvidia-smi dmon`: a line for each GPU and second, with watts, degrees, utilization and clocks.

    #Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk
    #YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz
     20240506   07:08:09      0    312     61     70     98     41   2619   1755

The first line of a header names the columns, which `-s` chooses; date and time are there with `-o DT`. Headers come again and
again. `--format csv` parts cells by commas. `-` is a value that a GPU does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.meters import Meters
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_COLUMNS = frozenset(
    ("pwr", "temp", "gtemp", "mtemp", "sm", "mem", "enc", "dec", "mclk", "pclk", "pviol", "tviol", "fb", "bar1", "sbecc", "rxpci")
)
"""Columns of each choice of `-s`: a header has at least one of them."""
_WHEN = ("date", "time")
_DAY = 86_400_000.0


@dataclass
class _Table:
    """The columns of the last header, their units, and the clock so far: days that passed and the last time of day, in ms."""

    names: list[str] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)
    days: int = 0
    last: float = 0.0

    def milliseconds(self, row: dict[str, str]) -> float | None:
        """Of a row with a time: since 1970 with a date, else since the first day's midnight. None where none can be read."""
        try:
            clock = datetime.strptime(row.get("time", ""), "%H:%M:%S")
            if "date" in row:
                day = datetime.strptime(row["date"], "%Y%m%d").replace(tzinfo=UTC)
                return day.timestamp() * 1e3 + _of_day(clock)
        except (ValueError, OverflowError):
            return None
        now = _of_day(clock)
        self.days += now < self.last
        self.last = now
        return self.days * _DAY + now


def recognises(head: Head) -> bool:
    """A header with a GPU and a known column, and without a process."""
    return any(_names(line) for line in head.lines[:50])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Mean watts and joules of each GPU, and means of all other columns. FileError for files without a reading."""
    meters = Meters()
    units: dict[str, str] = {}
    gpus: set[str] = set()
    broken: list[str] = []
    for path in files:
        table = _Table()
        for text in LogLines(path, context.progress, broken):
            _line(text.strip(), table, meters, gpus, f"{path.name} " if len(files) > 1 else "")
        units |= table.units
    if not gpus:
        raise FileError(str(files[0]), "no reading of a GPU", "what `nvidia-smi dmon -o DT` prints, with its header")
    broken.extend(meters.broken)
    facts = meters.facts() | {"gpus": len(gpus), "units": {name: units[name] for name in meters.other if name in units}}
    watts = f", {facts['mean_w_per_gpu']:g} W each" if meters.power else ""
    built = (f"{meters.readings or 'no'} readings of the power of {len(gpus)} GPUs{watts}",)
    assumed = [*meters.assumed, *([] if meters.power else ["no power: `-s` without p leaves it out"])]
    return Reading("nvidia-smi-dmon", Content.SETTINGS, facts, facts, built, meters.ignored, tuple(assumed), tuple(broken))


def _line(text: str, table: _Table, meters: Meters, gpus: set[str], host: str) -> None:
    if text.startswith("#"):
        if names := _names(text):
            table.names = names
        elif len(units := _cells(text)) == len(table.names):
            table.units = {name: unit for name, unit in zip(table.names, units, strict=True) if name not in ("gpu", *_WHEN)}
        return
    if not text or not table.names:
        return
    cells = _cells(text)
    row = dict(zip(table.names, cells, strict=False))
    if len(cells) != len(table.names) or not row["gpu"].isdecimal():
        meters.bad += 1
        return
    gpu = host + row["gpu"]
    gpus.add(gpu)
    numbers = {name: _number(cell) for name, cell in row.items() if name not in ("gpu", *_WHEN)}
    meters.blank += sum(value is None for value in numbers.values())
    if (watts := numbers.pop("pwr", None)) is not None:
        meters.take(gpu, table.milliseconds(row), watts)
    for name, value in numbers.items():
        if value is not None:
            meters.also(name, value)


def _names(line: str) -> list[str]:
    """The columns of a header's first line; none for another line."""
    names = [cell.lower() for cell in _cells(line)] if line.lstrip().startswith("#") else []
    is_header = "gpu" in names and "pid" not in names and _COLUMNS & set(names) and len(set(names)) == len(names)
    return names if is_header else []


def _cells(line: str) -> list[str]:
    text = line.strip().lstrip("#")
    return [cell.strip() for cell in text.split(",")] if "," in text else text.split()


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def _of_day(clock: datetime) -> float:
    return 1e3 * (clock.hour * 3600 + clock.minute * 60 + clock.second)
