"""The columns of calls: from their own arguments, or from the host range that launched them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s, Uint8s
from windtunnel.base.comm import Comm
from windtunnel.formats.traces.kineto.calls import Groups, call_of, from_range
from windtunnel.formats.traces.kineto.columns import Noted, Table, integers
from windtunnel.formats.traces.kineto.fields import Args
from windtunnel.records.comm_kernels import comm_of
from windtunnel.records.run import EventKind

_RANGES = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl|hccl):|c10d::|record_param_comms")
BY_SENDS = (Comm.ALL_TO_ALL, Comm.GATHER, Comm.SCATTER)  # calls that PyTorch makes of sends and receives
_NEAR = 64  # ranges before a launch that are looked at: launches stand directly inside their range


@dataclass(frozen=True)
class CallColumns:
    """[E] columns of `records.Events`. Of a synchronisation on the device, `sequence` is the launch of the event's record and
    `peer` the stream that is waited for."""

    comm: Uint8s
    bytes: Floats
    group: Int32s
    sequence: Int64s
    peer: Int32s


def call_columns(
    table: Table, noted: Sequence[Noted], kind: Uint8s, rows: Int64s, groups: Groups, begin: Floats, seconds: Floats, lanes: Int32s
) -> CallColumns:
    """The columns of events `rows` of the table; `begin`, `seconds` and `lanes` are those of the events."""
    place = np.full(len(kind), -1, np.int64)
    place[rows] = np.arange(len(rows))
    size = np.where(kind[rows] == EventKind.COPY, table.bytes[rows], np.nan)
    count = len(rows)
    calls = CallColumns(
        np.zeros(count, np.uint8), size, np.full(count, -1, np.int32), np.full(count, -1, np.int64), np.full(count, -1, np.int32)
    )
    ranges: dict[int, Args] = {}
    for one in noted:
        if (event := int(place[one.row])) >= 0:
            _from_arguments(calls, event, one.args, groups)
            if one.args.shapes:
                ranges[event] = one.args
    name = table.name[rows]
    silent = np.flatnonzero((kind[rows] == EventKind.CALL) & (calls.comm == Comm.NONE))
    if len(silent):
        host = _HostRanges(table, kind, rows, begin, seconds, lanes)
        for at in silent.tolist():
            owner = host.enclosing_range(int(table.correlation[rows[at]]), calls.comm)
            _from_owner(calls, int(at), owner, table.names[name[at]], table.names[name[owner]], ranges.get(owner))
    return calls


def _from_arguments(calls: CallColumns, at: int, args: Args, groups: Groups) -> None:
    call = call_of(args, groups) if args.collective is not None else None
    if call is not None:
        calls.comm[at], calls.bytes[at], calls.group[at] = call.comm, call.bytes, call.group
        calls.sequence[at], calls.peer[at] = call.sequence, call.peer
    elif args.sync_stream != -1:
        calls.peer[at] = np.clip(integers([args.sync_stream])[0], -1, 2**31 - 1)
        calls.sequence[at] = integers([args.sync_record])[0]


def _from_owner(calls: CallColumns, at: int, owner: int, kernel: str, range_name: str, args: Args | None) -> None:
    """Fills a call whose kernel has no arguments. A launch of several calls as one may hold another call than its range."""
    by_name = comm_of(kernel)
    if owner < 0:
        calls.comm[at] = by_name
        return
    call = from_range(range_name, args)
    comm = Comm(int(calls.comm[owner])) if calls.comm[owner] else call.comm
    if comm is Comm.NONE or (
        comm is not by_name and by_name is not Comm.NONE and not (by_name is Comm.SEND_RECV and comm in BY_SENDS)
    ):
        calls.comm[at] = by_name
        return
    calls.comm[at] = comm
    calls.bytes[at] = calls.bytes[owner] if calls.comm[owner] else call.bytes
    calls.group[at], calls.sequence[at], calls.peer[at] = calls.group[owner], calls.sequence[owner], calls.peer[owner]


class _HostRanges:
    """Finds the innermost host range of a communication library that stood around the launch of a kernel."""

    def __init__(self, table: Table, kind: Uint8s, rows: Int64s, begin: Floats, seconds: Floats, lanes: Int32s) -> None:
        speaks = np.array([_RANGES.match(text) is not None for text in table.names] or [False])
        kinds, correlation = kind[rows], table.correlation[rows]
        self.begin, self.end, self.lanes = begin, begin + seconds, lanes
        self.at = np.flatnonzero(speaks[table.name[rows]] & np.isin(kinds, (EventKind.OPERATOR, EventKind.ANNOTATION)))
        launches = np.flatnonzero((kinds == EventKind.LAUNCH) & (correlation >= 0))
        self.launch = dict(zip(correlation[launches].tolist(), launches.tolist(), strict=True))

    def enclosing_range(self, correlation: int, comm: Uint8s) -> int:
        """The range's place among the events: one that names its call, else the innermost; -1 where there is none."""
        launch = self.launch.get(correlation, -1)
        if launch < 0:
            return -1
        last, innermost = int(np.searchsorted(self.at, launch)), -1
        for place in self.at[max(0, last - _NEAR) : last][::-1]:
            if self.lanes[place] == self.lanes[launch] and self.end[place] >= self.begin[launch]:
                if comm[place]:
                    return int(place)
                innermost = int(place) if innermost < 0 else innermost
        return innermost
