"""Communication calls of a trace: which call, how many bytes, which ranks.

Kernels of PyTorch 2.3 and later carry the call in their arguments. In older traces the host range that launched the kernel says the
call (`nccl:all_to_all`), and its tensors the bytes.

The columns of calls: from their own arguments, or from the host range that launched them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s, Uint8s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.formats.traces.kineto.columns import NotedArgs, Table, floats, integers, narrowest
from windtunnel.formats.traces.kineto.fields import Args
from windtunnel.records.kernel_classes import comm_of
from windtunnel.records.run import EventKind

BARRIER_BYTES = 4.0
MOST_RANKS = 2**22

_SIZES: tuple[tuple[str, int], ...] = (  # c10's names and C++'s, lower case; the first that the text ends with
    ("complexdouble", 16), ("complexfloat", 8), ("complex<double>", 16), ("complex<float>", 8),
    ("bfloat16", 2), ("half", 2), ("float16", 2), ("double", 8), ("float64", 8), ("float32", 4), ("float", 4),
    ("e4m3fn", 1), ("e5m2", 1), ("e4m3fnuz", 1), ("e5m2fnuz", 1), ("e8m0fnu", 1),
    ("unsigned char", 1), ("signed char", 1), ("char", 1), ("byte", 1), ("bool", 1), ("int8", 1), ("uint8", 1),
    ("short int", 2), ("short", 2), ("int16", 2), ("uint16", 2), ("long int", 8), ("long", 8), ("int64", 8), ("uint64", 8),
    ("int32", 4), ("uint32", 4), ("int", 4),
)  # fmt: skip


@dataclass(frozen=True)
class CallArgs:
    """What is known of one call. `bytes`: the total buffer, as nccl-tests counts it; NaN unknown."""

    comm: Comm
    bytes: float = float("nan")
    group: int = -1
    sequence: int = -1
    peer: int = -1


@dataclass
class Groups:
    """The process groups that a trace names, numbered; `configured` are those of `distributedInfo`."""

    configured: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    partial: int = 0  # groups whose list of ranks was cut short and is given nowhere else

    def of(self, args: Args) -> int:
        """The group of a call; -1 where its ranks are unknown."""
        name = str(args.group_name) if args.group_name is not None else ""
        ranks = self._ranks(args, name)
        if not ranks:
            return -1
        key = (name, ranks)
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.texts.append(str(args.group_text) if args.group_text not in (None, "undefined", "") else name)
        return self.numbers[key]

    def _ranks(self, args: Args, name: str) -> tuple[int, ...]:
        listed, size = ranks_of(args.group_ranks), _count(args.group_size)
        if listed and len(listed) >= size:
            return listed
        if name in self.configured:
            return self.configured[name]
        start, stride = _count(args.group_start, -1), _count(args.group_stride)
        if start >= 0 and stride > 0 and 0 < size <= MOST_RANKS:
            return tuple(range(start, start + size * stride, stride))
        self.partial += bool(listed)
        return ()


def configured_groups(info: object) -> dict[str, tuple[int, ...]]:
    """Process groups by name from `distributedInfo.pg_config`."""
    entries = info.get("pg_config") if isinstance(info, dict) else None
    entries = list(entries.values()) if isinstance(entries, dict) else entries if isinstance(entries, list) else []
    named: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        if isinstance(entry, dict) and (ranks := ranks_of(entry.get("ranks"))) and len(ranks) >= _count(entry.get("pg_size")):
            named[str(entry.get("pg_name", ""))] = ranks
    return named


def ranks_of(value: object) -> tuple[int, ...]:
    """Ranks from a list or its text, up to where the profiler cut it short with an ellipsis."""
    if isinstance(value, str):
        value = [int(part) for part in re.findall(r"\d{1,9}", value.split("...")[0])[:MOST_RANKS]]
    if not isinstance(value, list):
        return ()
    return tuple(rank for rank in value if isinstance(rank, int) and 0 <= rank < 2**31)


def call_of(args: Args, groups: Groups) -> CallArgs | None:
    """A call from its own arguments, but for its number; None where they name none."""
    comm = comm_of(str(args.collective))
    if comm is Comm.NONE:
        return None
    size, element = _count(args.group_size), element_bytes(args.dtype)
    sent, received = floats([args.elements_in])[0] * element, floats([args.elements_out])[0] * element
    peer = _peer(args) if comm is Comm.SEND_RECV else -1
    total = BARRIER_BYTES if "barrier" in str(args.collective) else total_bytes(comm, sent, received, size)
    return CallArgs(comm, total, groups.of(args), peer=peer)


def total_bytes(comm: Comm, sent: float, received: float, size: int) -> float:
    """The buffer as nccl-tests counts it from the bytes that a rank puts in and takes out. A group of `size`; 0 unknown."""
    largest = max(sent, received) if sent == sent and received == received else sent if sent == sent else received
    if comm in (Comm.ALL_GATHER, Comm.GATHER):
        return max(largest, sent * size) if received != received or received <= sent else received
    if comm in (Comm.REDUCE_SCATTER, Comm.SCATTER):
        return sent if sent == sent and sent > 0 else received * size
    if comm is Comm.ALL_TO_ALL:
        return sent if sent == sent and sent > 0 else received
    return largest


def from_range(name: str, args: Args | None) -> CallArgs:
    """A call from the name of the host range that launched it, such as `nccl:all_to_all`, and the range's first tensor."""
    comm = comm_of(name.split(":", 1)[-1])
    if args is None or comm is Comm.NONE:
        return CallArgs(comm)
    shapes, kinds = _decode_list(args.shapes), _decode_list(args.types)
    if not shapes or not isinstance(shapes[0], list) or not kinds:
        return CallArgs(comm)
    count = 1.0
    for extent in shapes[0]:
        if not isinstance(extent, int):
            return CallArgs(comm)
        count *= extent
    size = count * element_bytes(kinds[0]) if shapes[0] else float("nan")
    return CallArgs(comm, float("nan") if comm in (Comm.ALL_GATHER, Comm.GATHER) else size)  # its input is one rank's part


def element_bytes(dtype: object) -> float:
    """Bytes of an element; NaN for a type that is not known."""
    word = str(dtype).lower().removeprefix("c10::").removeprefix("torch.")
    return next((float(size) for name, size in _SIZES if word.endswith(name)), float("nan"))


def _peer(args: Args) -> int:
    own = int(integers([args.rank])[0]) if args.rank is not None else -1
    ends = [int(integers([end])[0]) for end in (args.source, args.target) if end is not None]
    others = [end for end in ends if 0 <= end < 2**31 and end != own]
    return others[0] if others else -1


def _count(value: object, otherwise: int = 0) -> int:
    return int(integers([value])[0]) if value is not None else otherwise


def _decode_list(raw: Any) -> list[Any]:
    try:
        value = json.loads(bytes(raw)) if raw else []
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


_RANGES = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl|hccl):|c10d::|record_param_comms")
BY_SENDS = (Comm.ALL_TO_ALL, Comm.GATHER, Comm.SCATTER)  # calls that PyTorch makes of sends and receives
_NEAR = 64  # ranges before a launch that are looked at: launches stand directly inside their range


@dataclass(frozen=True)
class CallColumns:
    """[E] columns of `records.Events`, of the narrowest types that hold their values; one that says nothing is read-only and takes
    no memory. Of a synchronisation on the device, `sequence` is the launch of the event's record, and `peer` the stream that is
    waited for."""

    comm: Uint8s
    bytes: Floats
    group: Int32s
    sequence: Int64s
    peer: Int32s


def call_columns(
    table: Table, noted: NotedArgs, rows: Int32s, kinds: Uint8s, groups: Groups, begin: Floats, seconds: Floats, lanes: Int32s
) -> CallColumns:
    """The columns of the events of a table, whose other columns these are, and which were the `rows` of those that `noted` has."""
    told = _ToldCalls(noted, rows, groups)
    known = told.at[told.columns["comm"] != Comm.NONE]
    silent, copies = (np.setdiff1d(np.flatnonzero(kinds == kind), known) for kind in (EventKind.CALL, EventKind.COPY))
    found: dict[str, list[Any]] = {name: [] for name in told.columns}
    if len(silent):
        host, name = _HostRanges(table, kinds, begin, seconds, lanes), table.name
        for at in silent.tolist():
            owner = host.enclosing_range(table.correlation[at], told)
            call = told.call_inside(owner, table.names[name[owner]], comm_of(table.names[name[at]]))
            for each, values in found.items():
                values.append(getattr(call, each))

    def column(name: str, nothing: float, others: Int64s = silent[:0], values: Any = ()) -> np.ndarray[Any, Any]:
        more = (np.asarray(each, type(nothing)) for each in ([nothing], told.columns[name], found[name], values))
        whole = narrowest(np.concatenate(tuple(more)))
        where = np.concatenate((told.at, silent, others))
        if not len(where):
            return np.broadcast_to(whole[0], len(kinds))
        out = np.full(len(kinds), whole[0])
        out[where] = whole[1:]
        return out

    sizes = column("bytes", math.nan, copies, table.bytes[copies])
    return CallColumns(column("comm", 0).astype(np.uint8), sizes, column("group", -1), column("sequence", -1), column("peer", -1))


class _ToldCalls:
    """What arguments say of K events: `at`, and [K] `columns` as `CallColumns` has them."""

    def __init__(self, noted: NotedArgs, rows: Int32s, groups: Groups) -> None:
        noted_rows, which = np.array(noted.rows, np.int64), np.array(noted.which, np.int64)
        found = np.flatnonzero(np.isin(rows, noted_rows))
        found = found[np.argsort(rows[found])]  # by row
        kept = np.flatnonzero(np.isin(noted_rows, rows[found]))
        at = found[np.searchsorted(rows[found], noted_rows[kept])]
        said, first, times = np.unique(which[kept], return_index=True, return_counts=True)
        calls: list[CallArgs | None] = [None] * len(noted.args)
        for one in np.argsort(first).tolist():
            partial = groups.partial
            calls[said[one]] = _call_or_wait(noted.args[said[one]], groups)
            groups.partial += (groups.partial - partial) * (int(times[one]) - 1)
        nothing = CallArgs(Comm.NONE)
        each = [nothing if call is None else call for call in calls]
        self.at, self.args, self.which = at, noted.args, which[kept]
        self.columns: dict[str, np.ndarray[Any, Any]] = {
            name: np.array([getattr(call, name) for call in each], kind)[self.which]
            for name, kind in (("comm", np.int64), ("bytes", np.float64), ("group", np.int64), ("peer", np.int64))
        }
        counted = np.array([one is not nothing for one in each], bool)[self.which]
        self.columns["sequence"] = np.where(counted, np.array(noted.numbers, np.int64)[kept], -1)
        self._order = np.argsort(self.at, kind="stable")
        self._sorted = self.at[self._order]

    def find(self, event: int) -> int:
        """The place of an event among the K; -1 where its arguments say nothing."""
        place = int(np.searchsorted(self._sorted, event))
        return int(self._order[place]) if place < len(self._sorted) and self._sorted[place] == event else -1

    def call_inside(self, event: int, name: str, kernel: Comm) -> CallArgs:
        """The call of a `kernel` without arguments that a host range launched: the event, and its name; -1: none did. A launch of
        several calls as one may hold another call than its range."""
        if event < 0:
            return CallArgs(kernel)
        place = self.find(event)
        own = {column: values[place].item() for column, values in self.columns.items()} if place >= 0 else {}
        call = from_range(name, self.args[self.which[place]] if place >= 0 else None)
        comm = Comm(own["comm"]) if own.get("comm") else call.comm
        if comm is Comm.NONE or (
            comm is not kernel and kernel is not Comm.NONE and not (kernel is Comm.SEND_RECV and comm in BY_SENDS)
        ):
            return CallArgs(kernel)
        size = own["bytes"] if own.get("comm") else call.bytes
        return CallArgs(comm, size, own.get("group", -1), own.get("sequence", -1), own.get("peer", -1))


def _call_or_wait(args: Args, groups: Groups) -> CallArgs | None:
    """The call that arguments name, or the stream that a synchronisation waits for; but for the number."""
    call = call_of(args, groups) if args.collective is not None else None
    if call is None and args.sync_stream != -1:
        return CallArgs(Comm.NONE, peer=int(np.clip(integers([args.sync_stream])[0], -1, 2**31 - 1)))
    return call


class _HostRanges:
    """Finds the innermost host range of a communication library that stood around the launch of a kernel."""

    def __init__(self, table: Table, kinds: Uint8s, begin: Floats, seconds: Floats, lanes: Int32s) -> None:
        speaks = np.array([_RANGES.match(text) is not None for text in table.names] or [False])
        correlation = table.correlation
        self.begin, self.seconds, self.lanes = begin, seconds, lanes
        self.at = np.flatnonzero(speaks[table.name] & np.isin(kinds, (EventKind.OPERATOR, EventKind.ANNOTATION)))
        launches = np.flatnonzero((kinds == EventKind.LAUNCH) & (correlation >= 0))
        self.launches = launches[np.argsort(correlation[launches], kind="stable")]
        self.numbers = correlation[self.launches]

    def enclosing_range(self, correlation: np.signedinteger[Any], told: _ToldCalls) -> int:
        """The range's place among the events: one that names its call, else the innermost; -1 where there is none."""
        number = int(np.searchsorted(self.numbers, correlation, side="right")) - 1
        if number < 0 or self.numbers[number] != correlation:
            return -1
        launch = int(self.launches[number])
        last, innermost = int(np.searchsorted(self.at, launch)), -1
        for place in self.at[max(0, last - _NEAR) : last][::-1]:
            if self.lanes[place] == self.lanes[launch] and self.begin[place] + self.seconds[place] >= self.begin[launch]:
                known = told.find(int(place))
                if known >= 0 and told.columns["comm"][known]:
                    return int(place)
                innermost = int(place) if innermost < 0 else innermost
        return innermost
