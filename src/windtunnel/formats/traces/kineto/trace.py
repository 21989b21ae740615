"""One trace of a rank: from its columns to `records.RankTrace` and its steps.

Operators of a trace by inputs, pass and module: how often each was called, and how long what it launched ran on the device.

`profile.trace` finds the same kernel by kernel and says how; here all events are columns, since traces of jobs have millions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec
import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.engine.scan import enclosing, innermost
from windtunnel.formats.traces.kineto.batches import Around
from windtunnel.formats.traces.kineto.calls import Groups, call_columns, configured_groups
from windtunnel.formats.traces.kineto.columns import EventColumns, Table, integers
from windtunnel.formats.traces.kineto.fields import kind_of, step_of
from windtunnel.profile.trace import BACKWARD, FROM_GRAPH, GRAPH_LAUNCHES, MODULE, NO_LAUNCH, WINDOW
from windtunnel.profile.trace_events import COMPILED, shapes_of
from windtunnel.records.run import ON_DEVICE, EventKind, Events, OperatorCalls, RankTrace

_HOST = (EventKind.OPERATOR, EventKind.LAUNCH, EventKind.SYNC, EventKind.ANNOTATION)
_PASSES = ("forward", "backward", "optimizer")
_NO_LAUNCH, _FROM_GRAPH = -1, -2
"""Numbers of names that no event has."""


@dataclass(frozen=True)
class _Host:
    """H events of the host by begin, the longer first, and one after them that stands for none: row -1."""

    kind: Uint8s
    correlation: Int64s
    seconds: Floats
    name: Int32s
    parent: Int32s  # [H + 1] the row of what is around it; -1: none
    operator: Int32s  # [H + 1] the row of the operator that it is or is in
    inputs: Int32s
    module: Int32s  # [H + 1] the name of the module that it works for; -1: none
    phase: Int32s  # [H + 1] index of `_PASSES`


def operators_of(table: Table, kinds: Uint8s, rows: Int64s, begin: Floats, seconds: Floats) -> tuple[OperatorCalls, ...]:
    """The operators of R events in order of their begin: `rows` of the table, with `kinds`, `begin` and `seconds` (s).

    Nothing where the host's operators were not recorded.
    """
    if not (kinds == EventKind.OPERATOR).any():
        return ()
    opens, ends = -np.inf, np.inf
    if WINDOW in table.names:
        marks = np.flatnonzero(_says(table, lambda name: name == WINDOW)[table.name[rows]] & (kinds == EventKind.ANNOTATION))
        if len(marks):
            opens, ends = float(begin[marks[0]]), float(begin[marks[0]] + seconds[marks[0]])
    at = np.flatnonzero(np.isin(kinds, _HOST))
    at = at[np.lexsort((-seconds[at], begin[at]))]
    host = _host(table, rows[at], kinds[at], begin[at], seconds[at])
    if (kinds == EventKind.KERNEL).any() or (kinds == EventKind.CALL).any():
        ran = np.flatnonzero(np.isin(kinds, ON_DEVICE) & (begin >= opens))
        return _sum_launched(table, host, table.correlation[rows[ran]], seconds[ran])
    own = (host.operator[:-1] == np.arange(len(at))) & (begin[at] >= opens) & (begin[at] <= ends)
    return _sum_alone(table, host, np.flatnonzero(own))


def _says(table: Table, asks: Callable[[str], bool]) -> Bools:
    """[names + 1] what is asked of each name; of none, the last, False."""
    return np.array([*map(asks, table.names), False])


def _host(table: Table, rows: Int64s, kinds: Uint8s, begin: Floats, seconds: Floats) -> _Host:
    def with_none(values: np.ndarray, none: float) -> np.ndarray:
        return np.append(values, np.array(none, values.dtype))

    threads: dict[tuple[object, object], int] = {}
    lanes = np.array([threads.setdefault(place[1:], len(threads)) for place in table.places] or [0], np.int32)
    parent = with_none(enclosing(lanes[table.place[rows]], begin, begin + seconds), -1)
    name, kind = with_none(table.name[rows], -1), with_none(kinds, EventKind.KERNEL)
    operators = (kind == EventKind.OPERATOR) & ~_says(table, lambda text: COMPILED.search(text) is not None)[name]
    operator = innermost(parent, operators)
    inside = innermost(parent, _says(table, lambda text: text.startswith(MODULE))[name])
    module = np.where(inside >= 0, name[inside], -1)
    sequence, forward = with_none(table.sequence[rows], -1), with_none(table.forward[rows], -1)
    makes = operators & (sequence >= 0) & (forward <= 0)
    made = dict(zip(sequence[makes].tolist(), module[makes].tolist(), strict=True))  # the last has made the node
    backward = innermost(parent, (forward > 0) | _says(table, lambda text: text.startswith(BACKWARD))[name])
    optimizer = innermost(parent, _says(table, lambda text: text.startswith("Optimizer.step"))[name])
    phase = np.where(optimizer >= 0, 2, np.where(backward >= 0, 1, 0)).astype(np.int32)
    numbers, which = np.unique(sequence[backward], return_inverse=True)
    theirs = np.array([made.get(number, -1) for number in numbers.tolist()], np.int32)[which]
    module = np.where(phase == 0, module, np.where(phase == 1, theirs, -1)).astype(np.int32)
    correlation, inputs = with_none(table.correlation[rows], -1), with_none(table.inputs[rows], -1)
    return _Host(kind, correlation, with_none(seconds, 0.0), name, parent, operator, inputs, module, phase)


def _sum_launched(table: Table, host: _Host, correlation: Int64s, seconds: Floats) -> tuple[OperatorCalls, ...]:
    """Of what ran on the device for `seconds` each, with the correlation numbers of its launches."""
    calls = np.flatnonzero(np.isin(host.kind, (EventKind.LAUNCH, EventKind.SYNC)) & (host.correlation >= 0))
    calls = np.append(-1, calls[np.argsort(host.correlation[calls], kind="stable")])
    numbers = host.correlation[calls]
    last = np.searchsorted(numbers, correlation, side="right") - 1
    launch = np.where((correlation >= 0) & (last >= 0) & (numbers[last] == correlation), calls[last], -1)
    operator = host.operator[launch]
    graph = _says(table, lambda text: text.startswith(GRAPH_LAUNCHES))[host.name[launch]]
    name = np.where(graph, _FROM_GRAPH, np.where(operator >= 0, host.name[operator], host.name[launch]))
    inputs = np.where(graph, -1, host.inputs[operator])
    return _sum(table, (name, host.module[launch], host.phase[launch], inputs), seconds)


def _sum_alone(table: Table, host: _Host, rows: Int64s) -> tuple[OperatorCalls, ...]:
    """Of the operators in `rows` by their own time, without that of nested ones."""
    around = host.operator[host.parent]
    inner = np.flatnonzero((host.operator == np.arange(len(around))) & (around >= 0))
    nested = np.bincount(around[inner], host.seconds[inner], len(around))
    own = np.maximum(0.0, host.seconds - nested)[rows]
    return _sum(table, (host.name[rows], host.module[rows], host.phase[rows], host.inputs[rows]), own)


def _sum(table: Table, keys: tuple[np.ndarray, ...], seconds: Floats) -> tuple[OperatorCalls, ...]:
    """Calls with equal keys together: name, module, pass and inputs."""
    if not len(seconds):
        return ()
    each, where = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
    number, took = np.bincount(where.ravel()), np.bincount(where.ravel(), seconds)
    sums: dict[tuple[str, str, str, tuple[tuple[int, ...], ...], tuple[str, ...]], tuple[int, float]] = {}
    texts = {_NO_LAUNCH: NO_LAUNCH, _FROM_GRAPH: FROM_GRAPH}
    for (name, module, phase, inputs), count, total in zip(each.tolist(), number.tolist(), took.tolist(), strict=True):
        within = table.names[module].removeprefix(MODULE) if module >= 0 else ""
        told = table.inputs_texts[inputs] if inputs >= 0 else b""
        key = (texts.get(name) or table.names[name], within, _PASSES[phase], *_inputs(told))
        before = sums.get(key, (0, 0.0))
        sums[key] = before[0] + count, before[1] + total
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
