"""JAX's and TensorFlow's profiles (`*.xplane.pb`): what ran on each device, by XLA's operators.

Fields as in OpenXLA's xplane.proto: XSpace{1: planes}, XPlane{2: name, 3: lines, 4: event metadata, 5: stat metadata, 6: stats},
XLine{2: name, 3: begin in ns, 4: events}, XEvent{1: metadata, 2: offset in ps, 3: duration in ps, 4: stats}, XEventMetadata{1: id,
2: name, 4: short name, 5: stats}, XStat{1: metadata, 2: double, 3: uint64, 4: int64, 5: text, 7: text of a stat's metadata}. Names
of stats as in OpenXLA's xplane_schema.cc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
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
OWN = ("Stream", "XLA Ops")
"""Beginnings of names of the lines that a device's operators are in, a GPU's and a TPU's: the first that a plane has."""


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
            timelines += [_timeline(plane, str(path)) for plane in device_planes(data)]
        except OSError as error:
            raise FileError(str(path), error.strerror or str(error), WANTED) from error
        except (ValueError, UnicodeDecodeError, struct.error) as error:
            raise FileError(str(path), str(error)[:80], WANTED) from error
    return reading_of("xplane", timelines, str(files[0]))


@dataclass
class Plane:
    """A device's plane. `kernels` and `stats`: names by number; `works`: stats of a kernel's metadata by its number."""

    name: str
    lines: list[bytes]
    kernels: dict[int, str]
    works: dict[int, dict[str, Any]]
    stats: dict[int, str]
    about: dict[str, Any]


def device_planes(data: bytes) -> Iterator[Plane]:
    """The planes of a profile's devices. ValueError for bytes that are no profile."""
    for number, _, plane in fields(data):
        if number == 1 and isinstance(plane, bytes) and (found := _plane(plane)).name.startswith(DEVICE):
            yield found


def operator_of(plane: Plane, kernel: int, known: dict[str, Any]) -> str:
    """The operator of an event: XLA's, where its stats say that, else the kernel."""
    return str(known.get("hlo_op") or plane.kernels.get(kernel, "").removesuffix(".kd"))


def _plane(plane: bytes) -> Plane:
    made = Plane("", [], {}, {}, {}, {})
    entries: list[dict[int, Any]] = []
    stats: list[bytes] = []
    for number, _, value in fields(plane):
        if number == 2:
            made.name = _text(value)
        elif number == 3 and isinstance(value, bytes):
            made.lines.append(value)
        elif number in (4, 5) and isinstance(value, bytes):
            entry = _message(value)
            about = _message(entry[2]) if isinstance(entry.get(2), bytes) else {}
            key = int(entry.get(1, about.get(1, 0)))
            if number == 5:
                made.stats[key] = _text(about.get(2, b""))
            else:
                made.kernels[key] = _text(about.get(4, b"")) or _text(about.get(2, b""))
                entries.append(entry)
        elif number == 6 and isinstance(value, bytes):
            stats.append(value)
    if not made.name.startswith(DEVICE):
        return made
    for entry in entries:
        if isinstance(entry.get(2), bytes):
            long_name = _text(_message(entry[2]).get(2, b""))
            made.works[int(entry.get(1, 0))] = {"long_name": long_name, **stats_of(entry[2], 5, made.stats)}
    made.about = dict(_stat(one, made.stats) for one in stats)
    return made


def _timeline(plane: Plane, source: str) -> DeviceTimeline:
    """What ran on a device, which is named by its model where the plane says that."""
    timeline = DeviceTimeline(str(plane.about.get("device_type_string") or plane.name.removeprefix(DEVICE)), source)
    named = [_text(_message(line).get(2, b"")) for line in plane.lines]
    own = next((word for word in OWN if any(name.startswith(word) for name in named)), "")
    for place, (name, line) in enumerate(zip(named, plane.lines, strict=True)):
        if name.startswith(own) and not name.startswith(DERIVED):
            timeline.activities += without_nested(list(_activities(line, place, plane)))
    return timeline


def without_nested(activities: list[Activity]) -> Iterator[Activity]:
    """Activities of a line by their own time: a loop or a call of XLA encloses what runs in it."""
    open_ones: list[tuple[float, int]] = []
    own = [one.seconds for one in activities]
    for place in sorted(range(len(activities)), key=lambda at: (activities[at].begin, -activities[at].seconds)):
        one = activities[place]
        while open_ones and open_ones[-1][0] <= one.begin + 1e-12:
            open_ones.pop()
        if open_ones and one.begin + one.seconds <= open_ones[-1][0] + 1e-12:
            own[open_ones[-1][1]] -= one.seconds
        open_ones.append((one.begin + one.seconds, place))
    return (one._replace(seconds=max(0.0, left)) for one, left in zip(activities, own, strict=True))


def _activities(line: bytes, place: int, plane: Plane) -> Iterator[Activity]:
    about = _message(line)
    for number, _, value in fields(line):
        if number != 4 or not isinstance(value, bytes):
            continue
        event = _message(value)
        known = stats_of(value, 4, plane.stats)
        kernel = int(event.get(1, 0))
        begin = int(about.get(3, 0)) * 1e-9 + int(event.get(2, 0)) * 1e-12
        copy = "memcpy_details" in known or "copyBuffer" in plane.kernels.get(kernel, "")
        yield Activity(
            operator_of(plane, kernel, known),
            place,
            begin,
            int(event.get(3, 0)) * 1e-12,
            int(known.get("correlation_id", -1)),
            copy,
        )


def stats_of(message: bytes, field: int, names: dict[int, str]) -> dict[str, Any]:
    """The stats in a field of a message by name."""
    return dict(_stat(one, names) for number, _, one in fields(message) if number == field and isinstance(one, bytes))


def _stat(stat: bytes, names: dict[int, str]) -> tuple[str, Any]:
    found = _message(stat)
    value: Any = found.get(3, found.get(4, 0))
    if isinstance(found.get(2), bytes):
        (value,) = struct.unpack("<d", found[2])
    elif 5 in found:
        value = _text(found[5])
    elif 7 in found:
        value = names.get(int(found[7]), "")
    return names.get(int(found.get(1, 0)), ""), value


def _message(data: Any) -> dict[int, Any]:
    """The last value of each field."""
    return {number: value for number, _, value in fields(data)}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
