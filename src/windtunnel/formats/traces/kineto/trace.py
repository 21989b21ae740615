"""One trace of a rank: from its columns to `records.RankTrace` and its steps.

Operators of a trace by inputs, pass and module: how often each was called, and how long what it launched ran on the device.

`profile.trace` finds the same kernel by kernel and says how; here all events are columns, since traces of jobs have millions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.engine.scan import enclosing, innermost, longer_first
from windtunnel.formats.traces.kineto.batches import Around
from windtunnel.formats.traces.kineto.calls import Groups, call_columns, configured_groups
from windtunnel.formats.traces.kineto.columns import EventColumns, Table, give_back_freed, integers
from windtunnel.formats.traces.kineto.fields import kind_of, step_of
from windtunnel.profile.trace import BACKWARD, FROM_GRAPH, GRAPH_LAUNCHES, MODULE, NO_LAUNCH, WINDOW
from windtunnel.profile.trace_events import COMPILED, shapes_of
from windtunnel.records.run import ON_DEVICE, EventKind, Events, OperatorCalls, RankTrace

_HOST = (EventKind.OPERATOR, EventKind.LAUNCH, EventKind.SYNC, EventKind.ANNOTATION)
_PASSES = ("forward", "backward", "optimizer")
_PART = 1 << 16
"""Events that are looked at together."""
_NO_LAUNCH, _FROM_GRAPH = -1, -2
"""Numbers of names that no event has."""


@dataclass(frozen=True)
class _Host:
    """H events of the host by begin, the longer first, and one after them that stands for none: row -1."""

    kind: Uint8s
    name: Int32s
    inputs: Int32s
    parent: Int32s  # [H + 1] the row of what is around it; -1: none
    operator: Int32s  # [H + 1] the row of the operator that it is or is in
    module: Int32s  # [H + 1] the name of the module that it works for; -1: none
    phase: Uint8s  # [H + 1] index of `_PASSES`


def operators_of(table: Table, kinds: Uint8s, begin: Floats, seconds: Floats) -> tuple[OperatorCalls, ...]:
    """The operators of a table of R events in order of their begin, with `kinds`, `begin` and `seconds` (s).

    Nothing where the host's operators were not recorded.
    """
    if not (kinds == EventKind.OPERATOR).any():
        return ()
    opens, ends = -np.inf, np.inf
    if WINDOW in table.names:
        marks = np.flatnonzero(_says(table, lambda name: name == WINDOW)[table.name] & (kinds == EventKind.ANNOTATION))
        if len(marks):
            opens, ends = float(begin[marks[0]]), float(begin[marks[0]] + seconds[marks[0]])
    at = longer_first(np.flatnonzero(np.isin(kinds, _HOST)).astype(np.int32), begin, seconds)
    host = _host(table, at, kinds, begin, seconds)
    give_back_freed()
    if (kinds == EventKind.KERNEL).any() or (kinds == EventKind.CALL).any():
        ran = np.flatnonzero(np.isin(kinds, ON_DEVICE) & (begin >= opens))
        return _sum_launched(table, host, table.correlation[at], table.correlation[ran], seconds[ran])
    own = (host.operator[:-1] == np.arange(len(at), dtype=np.int32)) & (begin[at] >= opens) & (begin[at] <= ends)
    return _sum_alone(table, host, seconds[at], own)


def _says(table: Table, asks: Callable[[str], bool]) -> Bools:
    """[names + 1] what is asked of each name; of none, the last, False."""
    return np.array([*map(asks, table.names), False])


def _host(table: Table, at: Int32s, kinds: Uint8s, begin: Floats, seconds: Floats) -> _Host:
    """Of the events `at`, as `longer_first` has them."""

    def with_none(column: np.ndarray, none: int) -> np.ndarray:
        return np.append(column[at], np.array(none, column.dtype))

    threads: dict[tuple[object, object], int] = {}
    lanes = np.array([threads.setdefault(place[1:], len(threads)) for place in table.places] or [0], np.int32)
    parent = np.append(enclosing(at, lanes[table.place[at]], begin, seconds), np.int32(-1))
    name, kind = with_none(table.name, -1), with_none(kinds, EventKind.KERNEL)
    operators = (kind == EventKind.OPERATOR) & ~_says(table, lambda text: COMPILED.search(text) is not None)[name]
    operator = innermost(parent, operators)
    module = name[innermost(parent, _says(table, lambda text: text.startswith(MODULE))[name])]
    sequence, forward = with_none(table.sequence, -1), with_none(table.forward, -1)
    makes = np.flatnonzero(operators & (sequence >= 0) & (forward <= 0))
    makes = makes[np.argsort(sequence[makes], kind="stable")]
    backward = innermost(parent, (forward > 0) | _says(table, lambda text: text.startswith(BACKWARD))[name])
    optimizer = innermost(parent, _says(table, lambda text: text.startswith("Optimizer.step"))[name])
    phase = np.where(optimizer >= 0, np.uint8(2), (backward >= 0).astype(np.uint8))
    turned = np.flatnonzero(phase == 1)
    wanted = sequence[backward[turned]]
    makes = np.append(-1, makes)  # of several operators with one number the last has made the node
    maker = makes[np.searchsorted(sequence[makes], wanted, side="right") - 1]
    module[turned] = np.where(sequence[maker] == wanted, module[maker], -1)
    module[phase == 2] = -1
    return _Host(kind, name, with_none(table.inputs, -1), parent, operator, module, phase)


def _sum_launched(table: Table, host: _Host, launched: Int64s, correlation: Int64s, seconds: Floats) -> tuple[OperatorCalls, ...]:
    """Of what ran on the device for `seconds` each, with the correlation numbers of its launches; `launched`: those of the host."""
    calls = np.flatnonzero(np.isin(host.kind[:-1], (EventKind.LAUNCH, EventKind.SYNC)) & (launched >= 0))
    calls = np.append(-1, calls[np.argsort(launched[calls], kind="stable")])
    numbers = np.append(launched, -1)[calls]
    last = np.searchsorted(numbers, correlation, side="right") - 1
    launch = np.where((correlation >= 0) & (last >= 0) & (numbers[last] == correlation), calls[last], -1)
    operator = host.operator[launch]
    graph = _says(table, lambda text: text.startswith(GRAPH_LAUNCHES))[host.name[launch]]
    name = np.where(graph, _FROM_GRAPH, np.where(operator >= 0, host.name[operator], host.name[launch]))
    inputs = np.where(graph, -1, host.inputs[operator])
    return _sum(table, (name, host.module[launch], host.phase[launch], inputs), seconds, np.ones(len(seconds), bool))


def _sum_alone(table: Table, host: _Host, seconds: Floats, own: Bools) -> tuple[OperatorCalls, ...]:
    """Of the operators that `own` marks by their own time, without that of nested ones; `seconds` [H] becomes that."""
    nested = np.zeros(len(seconds))
    for part in _parts(len(seconds)):
        around = host.operator[host.parent[part]]
        inner = (host.operator[part] == np.arange(part.start, part.stop)) & (around >= 0)
        np.add.at(nested, around[inner], seconds[part][inner])
    seconds -= nested
    np.maximum(0.0, seconds, out=seconds)
    return _sum(table, tuple(key[:-1] for key in (host.name, host.module, host.phase, host.inputs)), seconds, own)


def _parts(count: int) -> Iterator[slice]:
    """Slices of so many events in all: what is made of one at a time takes little memory."""
    return (slice(at, min(at + _PART, count)) for at in range(0, count, _PART))


def _sum(table: Table, keys: tuple[np.ndarray, ...], seconds: Floats, chosen: Bools) -> tuple[OperatorCalls, ...]:
    """Calls with equal keys together: name, module, pass and inputs. `chosen`: which count."""
    modules = np.unique(keys[1])
    many = (len(table.names) + 2, len(modules), len(_PASSES), len(table.inputs_texts) + 1)
    place: dict[int, int] = {}  # by the number of its keys, in the order in which they are met
    number, took = np.zeros(0, np.int64), np.zeros(0)
    for part in _parts(len(chosen)):
        name, module, phase, inputs = (key[part][chosen[part]] for key in keys)
        index = (name + np.int64(2), np.searchsorted(modules, module), phase, inputs + np.int64(1))
        each, where = np.unique(np.ravel_multi_index(index, many), return_inverse=True)
        where = np.array([place.setdefault(one, len(place)) for one in each.tolist()], np.int64)[where]
        new = len(place) - len(number)
        number = np.append(number, np.zeros(new, np.int64)) + np.bincount(where, minlength=len(place))
        took = np.append(took, np.zeros(new))
        np.add.at(took, where, seconds[part][chosen[part]])
    sums: dict[tuple[str, str, str, tuple[tuple[int, ...], ...], tuple[str, ...]], tuple[int, float]] = {}
    texts = {_NO_LAUNCH: NO_LAUNCH, _FROM_GRAPH: FROM_GRAPH}
    for one in sorted(place):
        at_name, at_module, turn, at_inputs = (int(at) for at in np.unravel_index(one, many))
        within = int(modules[at_module])
        key = (
            texts.get(at_name - 2) or table.names[at_name - 2], table.names[within].removeprefix(MODULE) if within >= 0 else "",
            _PASSES[turn], *_inputs(table.inputs_texts[at_inputs - 1] if at_inputs else b""),
        )  # fmt: skip
        before = sums.get(key, (0, 0.0))
        sums[key] = before[0] + int(number[place[one]]), before[1] + float(took[place[one]])
    return tuple(OperatorCalls(*key, *value) for key, value in sums.items())


def _inputs(text: bytes) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Sizes and types of the inputs from the trace's words for them; nothing where they are no lists of them."""
    sizes, _, types = text.partition(b"\0")
    try:
        found = shapes_of(msgspec.json.decode(sizes) if sizes else ()), tuple(msgspec.json.decode(types) if types else ())
    except (msgspec.DecodeError, TypeError, ValueError):
        return (), ()
    return found if all(isinstance(one, str) for one in found[1]) else (found[0], ())


LANES_OF_A_DEVICE = 100_000
_FILE_RANK = re.compile(r"(?:rank|worker|gpu|trainer|dev)[-_.#]?(\d{1,7})", re.IGNORECASE)
_LEFT = 255


@dataclass(frozen=True)
class ReadTrace:
    """A trace, its steps by number with begin and length in seconds, what was counted, and what was assumed or broken.

    `counts`: `categories` and `span_us` of its facts; `rows` [E]: the row of the columns that each event is, empty for a pipeline's
    timeline.
    """

    trace: RankTrace
    steps: tuple[tuple[int, float, float], ...]
    counts: Mapping[str, Any]
    columns: EventColumns
    around: Around
    rank_from: str
    broken: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    rows: Int32s = field(default_factory=lambda: np.empty(0, np.int32))


def build(name: str, columns: EventColumns, around: Around, order: int) -> ReadTrace:
    """The rank's trace from its columns. Rows without a time are broken; a negative duration is a range that never ended."""
    table = columns.table()
    give_back_freed()
    counts = count_rows(table)
    broken, assumed = [], []
    timed = np.isfinite(table.begin) & np.isfinite(table.duration)
    if lost := int(np.sum(~timed)):
        broken.append(f"{lost} events without a time or a duration")
    if negative := int(np.sum(table.duration[timed] < 0)):
        assumed.append(f"{negative} events with a negative duration take none")
    kinds = _kinds(table)
    zero = math.floor(float(np.min(table.begin, where=timed, initial=np.inf))) if timed.any() else 0
    rows = np.flatnonzero(timed & (kinds != _LEFT)).astype(np.int32)
    rows = rows[np.argsort(table.begin[rows], kind="stable")]
    kinds = kinds[rows]
    table.keep(rows)
    give_back_freed()
    starts, lengths = table.seconds(slice(None), zero)
    table.begin = table.duration = starts[:0]  # from here on all columns are those of the events, by begin
    info = around.fields.get("distributedInfo")
    groups = Groups(configured_groups(info))
    rank, rank_from = rank_of(info, columns, name, order)
    operators = operators_of(table, kinds, starts, lengths)
    give_back_freed()
    lanes, devices = _lanes(table, kinds)
    if devices > 1:
        assumed.append(f"streams of {devices} devices in one trace: lane = device x {LANES_OF_A_DEVICE} + stream")
    calls = call_columns(table, columns.noted, rows, kinds, groups, starts, lengths, lanes)
    kinds[(calls.comm > 0) & (kinds == EventKind.KERNEL)] = EventKind.CALL  # an unknown library, whose arguments name the call
    events = Events(
        kinds, table.name, lanes, starts, lengths, table.correlation, table.external,
        calls.comm, calls.bytes, calls.group, calls.sequence, calls.peer,
        table.names, tuple(ranks for _, ranks in groups.numbers), tuple(groups.texts),
    )  # fmt: skip
    if groups.partial:
        assumed.append(f"{groups.partial} calls whose list of ranks is cut short have no group")
    base = around.fields.get("baseTimeNanoseconds")
    epoch = (base * 1e-9 if isinstance(base, int) and abs(base) < 2**63 else 0.0) + zero * 1e-6
    world = info.get("world_size", 0) if isinstance(info, dict) else 0
    give_back_freed()
    trace = RankTrace(rank, events, epoch, device_of(around.fields), int(integers([world])[0]) if world else 0, name, operators)
    return ReadTrace(trace, _steps(events), counts, columns, around, rank_from, tuple(broken), tuple(assumed), rows)


def count_rows(table: Table, rows: Bools | slice = slice(None)) -> dict[str, Any]:
    """Complete events and their time by category, in the file's own spelling, and the microseconds from the first to the last."""
    place, begin, duration = table.place[rows], table.begin[rows], table.duration[rows]
    count = np.bincount(place, minlength=len(table.places))
    time = np.bincount(place, np.nan_to_num(duration), minlength=len(table.places))
    summed: dict[str, dict[str, float]] = {}
    for number, (category, _, _) in enumerate(table.places):
        entry = summed.setdefault(str(category), {"n": 0, "dur_us": 0.0})
        entry["n"] += int(count[number])
        entry["dur_us"] = round_us(entry["dur_us"] + float(time[number]))
    ends = begin.astype(np.float64)
    ends += np.maximum(duration, 0.0)
    timed = np.isfinite(ends)
    span = {"span_us": round_us(float(ends[timed].max()) - float(begin[timed].min()))} if timed.any() else {}
    return {"categories": dict(sorted(summed.items())), **span}


def round_us(microseconds: float) -> float:
    """Microseconds as facts have them."""
    return round(microseconds, 3)


def rank_of(info: object, columns: EventColumns, name: str, order: int) -> tuple[int, str]:
    """The rank and where it is from: the trace, the calls' arguments, the file's name, or the order of the files."""
    told = integers([info.get("rank")])[0] if isinstance(info, dict) and info.get("rank") is not None else -1
    if 0 <= told < 2**31:
        return int(told), "distributedInfo"
    for _, args in islice(columns.noted, 1000):
        if args.rank is not None and 0 <= (rank := int(integers([args.rank])[0])) < 2**31:
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
    """[R] EventKind, or _LEFT. Asked once for each pair of a place and a name."""
    width = len(table.names) + 1
    pair = table.place.astype(np.int64) * width
    pair += table.name
    pairs = np.unique(pair)
    kinds = [
        kind_of(table.places[one // width][0], table.places[one // width][1], table.names[one % width]) for one in pairs.tolist()
    ]
    codes = np.array([_LEFT if kind is None else int(kind) for kind in kinds], np.uint8)
    return codes[np.searchsorted(pairs, pair)]


def _lanes(table: Table, kinds: Uint8s) -> tuple[Int32s, int]:
    """[E] the stream of a device event, the thread of a host event; and how many devices ran kernels."""
    stream, device = table.stream, table.device
    places = np.array([_thread(key) for key in table.places] or [0], np.int64)
    wide = places >= 2**31
    wide[wide] = np.isin(np.flatnonzero(wide), table.place)
    if wide.any():  # addresses of POSIX threads: numbered in order
        places[wide] = np.unique(places[wide], return_inverse=True)[1] + 2**30
    threads = places[table.place]
    on_device = np.isin(kinds, ON_DEVICE) | ((kinds == EventKind.SYNC) & (device >= 0))
    lanes = np.where(on_device, np.where(stream >= 0, stream, threads), threads)
    devices = np.unique(device[on_device & (device >= 0)])
    if len(devices) > 1:
        lanes = np.where(on_device & (device >= 0), device.astype(np.int64) * LANES_OF_A_DEVICE + lanes % LANES_OF_A_DEVICE, lanes)
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
