"""JAX's and TensorFlow's profiles (`*.xplane.pb`): what ran on each device, by XLA's operators.

Fields as in OpenXLA's xplane.proto: XSpace{1: planes}, XPlane{2: name, 3: lines, 4: event metadata, 5: stat metadata},
XLine{2: name, 3: begin in ns, 4: events}, XEvent{1: metadata, 2: offset in ps, 3: duration in ps, 4: stats}, XStat{1: metadata,
3: uint64, 4: int64, 5: text, 7: text of a stat's metadata}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading
from windtunnel.formats.traces.chakra.framing import fields
from windtunnel.formats.traces.timelines import Activity, DeviceTimeline, reading_of

LARGEST = 2**30
WANTED = "a profile of JAX or TensorFlow (*.xplane.pb)"
DEVICE = "/device:"
DERIVED = ("Framework", "XLA Modules", "Steps", "Source", "TensorFlow", "Async XLA Ops", "SparseCore")
"""Beginnings of names of lines that repeat what others hold, or lie over them."""


def recognises(head: Head) -> bool:
    """A plane as the first field, and the name of one of a profiler's planes in it."""
    return head.data[:1] == b"\x0a" and any(name in head.data for name in (b"/host:metadata", b"/device:", b"/host:CPU"))


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run, a rank a device. FileError for files that are no profile, and for one without activities of a device."""
    timelines: list[DeviceTimeline] = []
    for path in files:
        try:
            if path.stat().st_size > LARGEST:
                raise FileError(str(path), f"{path.stat().st_size} B", f"at most {LARGEST} B")
            data = path.read_bytes()
            planes = [plane for number, _, plane in fields(data) if number == 1 and isinstance(plane, bytes)]
            timelines += [found for plane in planes if (found := _timeline(plane, str(path))) is not None]
        except OSError as error:
            raise FileError(str(path), error.strerror or str(error), WANTED) from error
        except (ValueError, UnicodeDecodeError) as error:
            raise FileError(str(path), str(error)[:80], WANTED) from error
    return reading_of("xplane", timelines, str(files[0]))


def _timeline(plane: bytes, source: str) -> DeviceTimeline | None:
    lines: list[bytes] = []
    name = ""
    events: dict[int, str] = {}
    stats: dict[int, str] = {}
    for number, _, value in fields(plane):
        if number == 2:
            name = _text(value)
        elif number == 3 and isinstance(value, bytes):
            lines.append(value)
        elif number in (4, 5) and isinstance(value, bytes):
            entry = _message(value)
            about = _message(entry[2]) if isinstance(entry.get(2), bytes) else {}
            (events if number == 4 else stats)[int(entry.get(1, about.get(1, 0)))] = _text(about.get(2, b""))
    if not name.startswith(DEVICE):
        return None
    timeline = DeviceTimeline(name.removeprefix(DEVICE), source)
    for place, line in enumerate(lines):
        timeline.activities += _activities(line, place, events, stats)
    return timeline


def _activities(line: bytes, place: int, names: dict[int, str], stats: dict[int, str]) -> Iterator[Activity]:
    about = _message(line)
    if _text(about.get(2, b"")).startswith(DERIVED):
        return
    for number, _, value in fields(line):
        if number != 4 or not isinstance(value, bytes):
            continue
        event = _message(value)
        known = dict(_stat(one, stats) for field, _, one in fields(value) if field == 4 and isinstance(one, bytes))
        kernel = names.get(int(event.get(1, 0)), "")
        begin = int(about.get(3, 0)) * 1e-9 + int(event.get(2, 0)) * 1e-12
        copy = "memcpy_details" in known or "copyBuffer" in kernel
        yield Activity(
            str(known.get("hlo_op") or kernel.removesuffix(".kd")), place, begin, int(event.get(3, 0)) * 1e-12,
            int(known.get("correlation_id", -1)), copy,
        )  # fmt: skip


def _stat(stat: bytes, names: dict[int, str]) -> tuple[str, Any]:
    found = _message(stat)
    value: Any = found.get(3, found.get(4, 0))
    if 5 in found:
        value = _text(found[5])
    elif 7 in found:
        value = names.get(int(found[7]), "")
    return names.get(int(found.get(1, 0)), ""), value


def _message(data: Any) -> dict[int, Any]:
    """The last value of each field."""
    return {number: value for number, _, value in fields(data)}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
