"""Complete events (ph X, or pairs of B and E) in columns, gathered batch by batch so that memory holds columns only."""

from __future__ import annotations

import ctypes
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.formats.traces.kineto.batches import EVENTS, Layout
from windtunnel.formats.traces.kineto.fields import NO_ARGS, Args, TraceEvent, ValuedArgs

_Text = bytes  # a column is called bytes
_JOINED = 64
"""Batches after which their columns become one array."""
_WHOLE = (np.int8, np.int16, np.int32, np.int64)
_LARGEST = 1e18  # microseconds: 30,000 years
_IN_COLUMNS = tuple(
    (one.name, one.default)
    for one in msgspec.structs.fields(Args)
    if one.name in ("correlation", "external", "external_old", "record", "number", "forward", "stream", "device", "bytes")
    or one.name in ("sequence", "sync_record")
)
"""Arguments that columns have, with what stands for nothing."""


class NotedArgs:
    """Events whose arguments matter one by one: calls, synchronisations, marks of an iteration. Arguments that say the same but for
    their number (of a call in its group, of the record that is waited for) are kept once: `args`. Of each event `rows` has its row,
    `numbers` that number, -1 without one, and `which` its arguments."""

    def __init__(self) -> None:
        self.rows, self.numbers, self.which = array("q"), array("q"), array("i")
        self.args: list[Args] = []
        self._known: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, Args]]:
        return ((row, self.args[which]) for row, which in zip(self.rows, self.which, strict=True))

    def add(self, row: int, args: Args) -> None:
        """One event, whose arguments are changed."""
        number = args.sync_record if args.collective is None else args.sequence
        for name, nothing in _IN_COLUMNS:
            setattr(args, name, nothing)
        key = msgspec.json.encode(args)
        if key not in self._known:
            self._known[key] = len(self.args)
            self.args.append(_detach_args(args))
        self.rows.append(row)
        self.numbers.append(number if type(number) is int and abs(number) < 2**62 else _integer(number))
        self.which.append(self._known[key])


@dataclass
class Table:
    """R complete events in columns, in the order of the file. Each column has the narrowest type that holds its values: widen it
    before any arithmetic."""

    place: Int32s  # [R] index of `places`
    name: Int32s  # [R] index of `names`
    begin: Floats  # [R] us
    duration: Floats  # [R] us; NaN where there is none
    correlation: Int64s  # [R] -1 none
    external: Int64s
    stream: Int64s
    device: Int64s
    sequence: Int32s  # of autograd; -1 none, as in `forward` and `inputs`
    forward: Int32s
    inputs: Int32s  # index of `inputs_texts`
    bytes: Floats
    places: tuple[tuple[object, object, object], ...]  # (category, process, thread)
    names: tuple[str, ...]
    inputs_texts: tuple[_Text, ...]
    """Sizes and types of an operator's inputs as the trace has them, a zero byte between."""

    def seconds(self, rows: Int64s | slice, zero: int) -> tuple[Floats, Floats]:
        """When rows begin after `zero` (us), and how long they take, in s."""
        begin, duration = self.begin[rows].astype(np.float64), self.duration[rows].astype(np.float64)
        begin -= zero
        np.maximum(duration, 0.0, out=duration)
        begin *= 1e-6
        duration *= 1e-6
        return begin, duration

    def keep(self, rows: Int32s) -> None:
        """Only these rows, in their order; of one column at a time there are two copies."""
        for name in _TYPES:
            setattr(self, name, getattr(self, name)[rows])


_TYPES: dict[str, Any] = {
    "place": np.int32, "name": np.int32, "begin": np.float64, "duration": np.float64, "correlation": np.int64,
    "external": np.int64, "stream": np.int64, "device": np.int64, "sequence": np.int32, "forward": np.int32,
    "inputs": np.int32, "bytes": np.float64,
}  # fmt: skip


@dataclass
class EventColumns:
    """EventColumns of the complete events so far, as lists of arrays; texts are numbered. `layout`: what is read of an event."""

    layout: ClassVar[Layout[TraceEvent]] = EVENTS
    place: list[Int32s] = field(default_factory=list)  # index of `places`
    name: list[Int32s] = field(default_factory=list)
    begin: list[Floats] = field(default_factory=list)  # us
    duration: list[Floats] = field(default_factory=list)  # us; NaN where there is none
    correlation: list[Int64s] = field(default_factory=list)
    external: list[Int64s] = field(default_factory=list)
    stream: list[Int64s] = field(default_factory=list)
    device: list[Int64s] = field(default_factory=list)
    sequence: list[Int32s] = field(default_factory=list)
    forward: list[Int32s] = field(default_factory=list)
    inputs: list[Int32s] = field(default_factory=list)  # index of `inputs_texts`
    bytes: list[Floats] = field(default_factory=list)
    places: dict[tuple[object, object, object], int] = field(default_factory=dict)  # (category, process, thread)
    names: dict[str, int] = field(default_factory=dict)
    inputs_texts: dict[_Text, int] = field(default_factory=dict)
    phases: Counter[str] = field(default_factory=Counter)
    noted: NotedArgs = field(default_factory=NotedArgs)
    marks: list[tuple[str, object, object, float, Args]] = field(default_factory=list)  # instants: name, process, thread, us, args
    peak: float = 0.0  # largest "Total Allocated" of a GPU, bytes
    rows: int = 0
    joined: int = 0  # how many arrays of a column, the first ones, are `_JOINED` in one
    unpaired: int = 0
    threads: dict[tuple[object, object], str] = field(default_factory=dict)  # names by process and thread
    open: dict[tuple[object, object], list[TraceEvent]] = field(default_factory=dict)  # B events that wait for their E

    def add(self, events: list[TraceEvent]) -> None:
        """One batch."""
        self.phases.update([event.ph if isinstance(event.ph, str) else "?" for event in events])
        complete = [event for event in events if event.ph == "X"]
        for event in events:
            if event.ph in ("B", "E"):
                self._pair(event, complete)
            elif event.ph in ("i", "I"):
                self._mark(event)
            elif event.ph == "M" and event.name == "thread_name" and event.args:
                self.threads[_process_thread(event)] = str(event.args.name)
        if complete:
            self._append(complete)

    def append_columns(self, part: Mapping[str, np.ndarray[Any, Any]], noted: Iterable[tuple[int, Args, object]]) -> None:
        """Complete events that are columns already, and of some of them the row, arguments and name."""
        full = len(self.name) == self.joined + _JOINED
        for name, column in part.items():
            parts = getattr(self, name)
            if full:  # small pieces would leave as many holes, each too small for a whole column
                parts[self.joined :] = [np.concatenate(parts[self.joined :])]
            parts.append(narrowest(column))
        self.joined += full
        first = self.rows
        for row, args, text in noted:
            if _matters(args, text):
                self.noted.add(first + row, args)
        self.rows += len(part["name"])

    def table(self) -> Table:
        """The columns as arrays; the lists are emptied, so that memory holds one copy."""
        arrays = {}
        for name, kind in _TYPES.items():
            parts = getattr(self, name)
            arrays[name] = np.concatenate(parts) if parts else np.empty(0, kind)
            parts.clear()
        return Table(**arrays, places=tuple(self.places), names=tuple(self.names), inputs_texts=tuple(self.inputs_texts))

    def _append(self, events: list[TraceEvent]) -> None:
        places, names = self.places, self.names
        place = [places.setdefault(key_of(e), len(places)) for e in events]
        name = [names.setdefault(n if type(n := e.name) is str else str(n), len(names)) for e in events]
        args = [a if (a := e.args) is not None else NO_ARGS for e in events]
        part: dict[str, np.ndarray[Any, Any]] = {
            "place": np.array(place, np.int32),
            "name": np.array(name, np.int32),
            "begin": floats([e.ts for e in events]),
            "duration": floats([e.dur for e in events]),
            "correlation": integers([a.correlation for a in args]),
            "external": integers([b if (b := a.external) is not None else a.external_old for a in args]),
            "stream": integers([a.stream for a in args]),
            "device": integers([a.device for a in args]),
            "sequence": _narrow(integers([a.number for a in args])),
            "forward": _narrow(integers([a.forward for a in args])),
            "inputs": np.array([self._number_inputs(a) for a in args], np.int32),
            "bytes": floats([a.bytes for a in args]),
        }
        self.append_columns(part, ((at, one, events[at].name) for at, one in enumerate(args)))

    def _number_inputs(self, args: Args) -> int:
        sizes, types = bytes(args.shapes), bytes(args.types)
        return self.inputs_texts.setdefault(sizes + b"\0" + types, len(self.inputs_texts)) if sizes or types else -1

    def _pair(self, event: TraceEvent, complete: list[TraceEvent]) -> None:
        stack = self.open.setdefault(_process_thread(event), [])
        if event.ph == "B":
            stack.append(event)
            return
        if not stack:
            self.unpaired += 1
            return
        start = stack.pop()
        begin, end = floats([start.ts])[0], floats([event.ts])[0]
        args = event.args if event.args not in (None, NO_ARGS) else start.args
        complete.append(
            TraceEvent(
                "X",
                start.cat,
                start.name if start.name is not None else event.name,
                start.pid,
                start.tid,
                start.ts,
                end - begin,
                args,
            )
        )

    def _mark(self, event: TraceEvent) -> None:
        args = event.args or NO_ARGS
        if event.name == "[memory]":
            if args.device_type == 1 and isinstance(args.allocated, (int, float)) and args.allocated < 1e15:
                self.peak = max(self.peak, float(args.allocated))
        elif args.iteration is not None:
            self.marks.append((str(event.name), event.pid, event.tid, float(floats([event.ts])[0]), args))


def key_of(event: TraceEvent) -> tuple[object, object, object]:
    """Category, process and thread of an event."""
    process, thread = _process_thread(event)
    return (event.cat if isinstance(event.cat, str) else None, process, thread)


def _process_thread(event: TraceEvent) -> tuple[object, object]:
    process, thread = event.pid, event.tid
    return (
        process if isinstance(process, (str, int, float)) else str(process),
        thread if isinstance(thread, (str, int, float)) else str(thread),
    )


def _matters(args: Args, name: object) -> bool:
    if args is NO_ARGS:
        return False
    return (
        args.collective is not None
        or args.sync_stream != -1
        or args.iteration is not None
        or args.step is not None
        or (bool(args.shapes) and isinstance(name, str) and name.startswith(("nccl:", "gloo:", "c10d::", "record_param")))
    )


def _detach_args(args: Args) -> Args:
    """The arguments without a view of the text that they were read from, which would stay in memory."""
    if args.shapes or args.types:
        args.shapes, args.types = args.shapes.copy(), args.types.copy()
    if isinstance(args, ValuedArgs):
        args.concrete = args.concrete.copy()
    return args


def narrowest(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy with the same values in 8, 16, 32 or 64 bits, the fewest that hold them all."""
    if column.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrow = column.astype(np.float32)
        return narrow if np.array_equal(narrow, column, equal_nan=True) else column.copy()
    least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    return column.astype(next(one for one in _WHOLE if np.iinfo(one).min <= least and most <= np.iinfo(one).max))


def give_back_freed() -> None:
    """Gives what was freed back to the system, where the C library has a word for it (glibc): columns of different widths leave
    holes that the next ones do not fit into."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def floats(values: Sequence[Any]) -> Floats:
    """Numbers, also written as text; NaN for anything else and for what no clock can say."""
    try:
        numbers = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([_float(value) for value in values], np.float64)
    if numbers.ndim != 1:
        numbers = np.array([_float(value) for value in values], np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(numbers) < _LARGEST, numbers, np.nan)


def integers(values: Iterable[Any]) -> Int64s:
    """Whole numbers, also written as text; -1 for anything else."""
    listed = list(values)
    try:
        numbers = np.array(listed, np.int64)
        if numbers.ndim == 1:
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([_integer(value) for value in listed], np.int64)


def _narrow(numbers: Int64s) -> Int32s:
    """-1 for what 32 bits do not hold."""
    return np.where((numbers < 0) | (numbers >= 2**31), -1, numbers).astype(np.int32)


def _float(value: object) -> float:
    if not isinstance(value, (int, float, str)):
        return float("nan")
    try:
        return float(value)
    except (ValueError, OverflowError):
        return float("nan")


def _integer(value: object) -> int:
    number = _float(value)
    if not abs(number) < 2**62:
        return -1
    return value if isinstance(value, int) else int(number)
