"""An independent reader of protobuf's wire format, enough to check a timeline field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) pairs of a message; ValueError where the bytes are not one."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise ValueError("varint runs over the end")
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(data):
        key = varint()
        wire, number = key & 7, key >> 3
        if number == 0:
            raise ValueError("field number 0")
        if wire == 0:
            yield number, varint()
        elif wire == 1:
            yield number, int.from_bytes(data[at : at + 8], "little")
            at += 8
        elif wire == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError("field runs over the end")
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire}")


def grouped(data: bytes) -> dict[int, list[int | bytes]]:
    found: dict[int, list[int | bytes]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


@dataclass
class Event:
    track: int
    kind: int
    time: int
    name: str = ""
    category: str = ""
    notes: dict[str, int] = field(default_factory=dict)
    flows: list[int] = field(default_factory=list)
    lands: list[int] = field(default_factory=list)


@dataclass
class Trace:
    processes: dict[int, str]  # pid -> name
    tracks: dict[int, tuple[int, str]]  # uuid -> (pid, name)
    events: list[Event]


def read(data: bytes) -> Trace:
    """Decode a whole file."""
    trace = Trace({}, {}, [])
    tables: dict[int, dict[int, str]] = {1: {}, 2: {}, 3: {}}
    for number, packet in fields(data):
        assert number == 1 and isinstance(packet, bytes)
        parts = grouped(packet)
        assert parts[10] == [1], "every packet needs its sequence"
        for block in parts.get(12, []):
            for table, entry in fields(block):
                entry_fields = grouped(entry)
                tables[table][entry_fields[1][0]] = entry_fields[2][0].decode()
        for descriptor in parts.get(60, []):
            d = grouped(descriptor)
            if 3 in d:
                process = grouped(d[3][0])
                trace.processes[process[1][0]] = process[6][0].decode()
            if 4 in d:
                thread = grouped(d[4][0])
                trace.tracks[d[1][0]] = (thread[1][0], thread[5][0].decode())
        for raw in parts.get(11, []):
            e = grouped(raw)
            event = Event(e[11][0], e[9][0], parts[8][0], flows=e.get(47, []), lands=e.get(48, []))
            if event.kind == 1:
                event.name, event.category = tables[2][e[10][0]], tables[1][e[3][0]]
                for note in e.get(4, []):
                    n = grouped(note)
                    event.notes[tables[3][n[1][0]]] = n[4][0]
            trace.events.append(event)
    return trace


def slices(trace: Trace) -> dict[int, list[tuple[int, int, Event]]]:
    """Begin/end pairs by track; ValueError where they are out of order, unbalanced or overlapping."""
    opened: dict[int, Event] = {}
    found: dict[int, list[tuple[int, int, Event]]] = {uuid: [] for uuid in trace.tracks}
    last = dict.fromkeys(trace.tracks, -1)
    for event in trace.events:
        if event.time < last[event.track]:
            raise ValueError("time runs backwards on a track")
        last[event.track] = event.time
        if event.kind == 1:
            if event.track in opened:
                raise ValueError("slices overlap")
            opened[event.track] = event
        elif event.kind == 2:
            begin = opened.pop(event.track, None)
            if begin is None:
                raise ValueError("an end without a begin")
            found[event.track].append((begin.time, event.time, begin))
    if opened:
        raise ValueError("a slice never ends")
    return found
