"""One trace of a rank: from its columns to `records.RankTrace` and its steps."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s, Uint8s
from windtunnel.formats.traces.kineto.batches import Around
from windtunnel.formats.traces.kineto.call_columns import call_columns
from windtunnel.formats.traces.kineto.calls import Groups, configured_groups
from windtunnel.formats.traces.kineto.columns import EventColumns, Table, integers
from windtunnel.formats.traces.kineto.kinds import kind_of, step_of
from windtunnel.formats.traces.kineto.operators import operators_of
from windtunnel.records.run import ON_DEVICE, EventKind, Events, RankTrace

LANES_OF_A_DEVICE = 100_000
_FILE_RANK = re.compile(r"(?:rank|worker|gpu|trainer|dev)[-_.#]?(\d{1,7})", re.IGNORECASE)
_LEFT = 255


@dataclass(frozen=True)
class ReadTrace:
    """A trace, its steps by number with begin and length in seconds, what was counted, and what was assumed or broken.

    `rows` [E]: the row of the columns that each event is; empty for a pipeline's timeline.
    """

    trace: RankTrace
    steps: tuple[tuple[int, float, float], ...]
    table: Table
    columns: EventColumns
    around: Around
    rank_from: str
    broken: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    rows: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


def build(name: str, columns: EventColumns, around: Around, order: int) -> ReadTrace:
    """The rank's trace from its columns. Rows without a time are broken; a negative duration is a range that never ended."""
    table = columns.table()
    begin, duration = table.begin, table.duration
    broken, assumed = [], []
    timed = np.isfinite(begin) & np.isfinite(duration)
    if lost := int(np.sum(~timed)):
        broken.append(f"{lost} events without a time or a duration")
    if negative := int(np.sum(duration[timed] < 0)):
        assumed.append(f"{negative} events with a negative duration take none")
    kind = _kinds(table)
    kept = timed & (kind != _LEFT)
    zero = math.floor(float(begin[timed].min())) if timed.any() else 0
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(begin[rows], kind="stable")]
    info = around.fields.get("distributedInfo")
    groups = Groups(configured_groups(info))
    rank, rank_from = rank_of(info, columns, name, order)
    starts, lengths = (begin[rows] - zero) * 1e-6, np.maximum(duration[rows], 0.0) * 1e-6
    operators = operators_of(table, kind[rows], rows, starts, lengths)
    lanes, devices = _lanes(table, kind, rows)
    if devices > 1:
        assumed.append(f"streams of {devices} devices in one trace: lane = device x {LANES_OF_A_DEVICE} + stream")
    calls = call_columns(table, columns.noted, kind, rows, groups, starts, lengths, lanes)
    kinds = kind[rows]
    kinds[(calls.comm > 0) & (kinds == EventKind.KERNEL)] = EventKind.CALL  # an unknown library, whose arguments name the call
    events = Events(
        kinds, table.name[rows], lanes, starts, lengths, table.correlation[rows], table.external[rows],
        calls.comm, calls.bytes, calls.group, calls.sequence, calls.peer,
        table.names, tuple(ranks for _, ranks in groups.numbers), tuple(groups.texts),
    )  # fmt: skip
    if groups.partial:
        assumed.append(f"{groups.partial} calls whose list of ranks is cut short have no group")
    base = around.fields.get("baseTimeNanoseconds")
    epoch = (base * 1e-9 if isinstance(base, int) and abs(base) < 2**63 else 0.0) + zero * 1e-6
    world = info.get("world_size", 0) if isinstance(info, dict) else 0
    trace = RankTrace(rank, events, epoch, device_of(around.fields), int(integers([world])[0]) if world else 0, name, operators)
    return ReadTrace(trace, _steps(events), table, columns, around, rank_from, tuple(broken), tuple(assumed), rows)


def rank_of(info: object, columns: EventColumns, name: str, order: int) -> tuple[int, str]:
    """The rank and where it is from: the trace, the calls' arguments, the file's name, or the order of the files."""
    told = integers([info.get("rank")])[0] if isinstance(info, dict) and info.get("rank") is not None else -1
    if 0 <= told < 2**31:
        return int(told), "distributedInfo"
    for noted in columns.noted[:1000]:
        if noted.args.rank is not None and 0 <= (rank := int(integers([noted.args.rank])[0])) < 2**31:
            return rank, "the arguments of its calls"
    if (match := _FILE_RANK.search(name.rsplit("/", 1)[-1])) is not None:
        return int(match[1]), "the file's name"
    return order, "the order of the files"


def device_of(fields: dict[str, object]) -> str:
    """The first GPU's name."""
    listed = fields.get("deviceProperties", fields.get("computeProperties"))
    first = listed[0] if isinstance(listed, list) and listed else None
    return str(first.get("name", "")) if isinstance(first, dict) else ""


def _kinds(table: Table) -> Uint8s:
    """[R] EventKind, or _LEFT. Asked once for each pair of place and name."""
    pairs, inverse = np.unique(table.place.astype(np.int64) << 32 | table.name, return_inverse=True)
    places, names = table.places, table.names
    kinds = [kind_of(places[int(p) >> 32][0], places[int(p) >> 32][1], names[int(p) & 0xFFFFFFFF]) for p in pairs]
    codes = np.array([_LEFT if kind is None else int(kind) for kind in kinds], np.uint8)
    return codes[inverse] if len(codes) else np.empty(0, np.uint8)


def _lanes(table: Table, kind: Uint8s, rows: Int64s) -> tuple[Int32s, int]:
    """[rows] the stream of a device event, the thread of a host event; and how many devices ran kernels."""
    stream, device, kinds = table.stream[rows], table.device[rows], kind[rows]
    threads = np.array([_thread(key) for key in table.places] or [0], np.int64)[table.place[rows]]
    wide = threads >= 2**31
    if wide.any():  # addresses of POSIX threads: numbered in order
        threads[wide] = np.unique(threads[wide], return_inverse=True)[1] + 2**30
    on_device = np.isin(kinds, ON_DEVICE) | ((kinds == EventKind.SYNC) & (device >= 0))
    lanes = np.where(on_device, np.where(stream >= 0, stream, threads), threads)
    devices = np.unique(device[on_device & (device >= 0)])
    if len(devices) > 1:
        lanes = np.where(on_device & (device >= 0), device * LANES_OF_A_DEVICE + lanes % LANES_OF_A_DEVICE, lanes)
    return np.clip(lanes, -1, 2**31 - 1).astype(np.int32), len(devices)


def _thread(place: tuple[object, object, object]) -> int:
    thread = place[2]
    if isinstance(thread, str):  # "stream 7", "thread 23 (python)"
        match = re.search(r"\d{1,18}", thread)
        return int(match[0]) if match else -1
    return int(integers([thread])[0])


def _steps(events: Events) -> tuple[tuple[int, float, float], ...]:
    numbers = [step_of(name) for name in events.names]
    named = np.array([number is not None for number in numbers] or [False])
    at = np.flatnonzero(named[events.name] & np.isin(events.kind, (EventKind.ANNOTATION, EventKind.OPERATOR)))
    return tuple((numbers[events.name[i]] or 0, float(events.begin[i]), float(events.seconds[i])) for i in at)
