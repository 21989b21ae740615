"""A prediction as a run: the events that a profiler would have recorded of it, one rank for each pipeline stage.

What a measured run is compared with goes through the same code as the measurement, so that both sides are counted alike. Kernels
are called `windtunnel::CLASS::OPERATOR`, calls as NCCL calls its kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.engine import HOST_SYNC, run
from windtunnel.engine.timeline import OpTimes
from windtunnel.network.groups.shape import members
from windtunnel.predict.price.calibrated import axis_group, kernel_name
from windtunnel.predict.program.calls import NetworkCall, NetworkCalls
from windtunnel.predict.program.lower import Lowered, count_executed, lower
from windtunnel.predict.runs.setting import Setting
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps
from windtunnel.spec import Job, check
from windtunnel.workload import Axis, Kind, Workload, build

MOST_EVENTS = 4_000_000
"""Kernels and calls of all stages beyond which a prediction is not written as a run: some 500 MB."""

NCCL_NAMES = {
    Comm.ALL_REDUCE: "ncclDevKernel_AllReduce",
    Comm.ALL_GATHER: "ncclDevKernel_AllGather",
    Comm.REDUCE_SCATTER: "ncclDevKernel_ReduceScatter",
    Comm.BROADCAST: "ncclDevKernel_Broadcast",
    Comm.REDUCE: "ncclDevKernel_Reduce",
}
"""Names of NCCL's kernels; what is not here runs in its send-receive kernel, `SEND_RECV_NAME`."""
SEND_RECV_NAME = "ncclDevKernel_SendRecv"
_HOST_THREAD = 1000
_LAUNCH_CALL = 2e-6
"""Seconds that a launch shows on the host; the rest of its cost lies between launches, as in a profiler's trace."""


class _EveryCall(NetworkCalls):
    """Names every call between passes, those of all ranks too."""

    def runs(self, axis: Axis) -> bool:
        return True


def first_ranks(job: Job) -> Int64s:
    """The first rank of each pipeline stage [pp], which stands for the stage."""
    if job.plan.pp == 1:
        return np.zeros(1, np.int64)
    return np.array([int(members(job, Axis.PP, stage)[:, 0].min()) for stage in range(job.plan.pp)], np.int64)


def expected_run(job: Job) -> Run:
    """The step of equal ranks that the closed form predicts for a job. SpecError for one of more than `MOST_EVENTS` events."""
    workload = build(check(job))
    costs = Setting().price(workload)
    named = _EveryCall(costs.calls, live_key=None)
    lowered = lower(workload, costs, named)
    count = count_executed(lowered.program, lowered.stages)
    if count > MOST_EVENTS:
        raise SpecError("JOB", job.name, f"a step of at most {MOST_EVENTS:,} kernels and calls", f"It has {count:,}.")
    timeline = run(lowered.program, record_ops=range(lowered.stages), critical_path=False)
    keys, plans = named.table()
    calls = list(named.calls)
    table = {key: calls[plan] for key, plan in zip(keys.tolist(), plans.tolist(), strict=True)}
    ranks = first_ranks(job)
    writers = [_Stage(workload, lowered, stage, table, ranks) for stage in range(lowered.stages)]
    about: dict[str, Any] = {"device": job.cluster.gpu.name, "world": job.cluster.gpus, "source": f"prediction of {job.name}"}
    traces = tuple(RankTrace(one.rank, one.events(timeline.recorded, timeline.host_begin), **about) for one in writers)
    tokens = float(job.plan.global_batch * job.plan.seq)
    steps = Steps.of(ranks, np.zeros(len(ranks)), begin=np.zeros(len(ranks)), seconds=np.full(len(ranks), timeline.makespan),
                     tokens=np.full(len(ranks), tokens))  # fmt: skip
    return Run(steps, traces, {"framework": job.runtime.framework, "gpus": job.cluster.gpus}, f"prediction of {job.name}")


class _Stage:
    """The events of one stage's program."""

    def __init__(self, workload: Workload, lowered: Lowered, stage: int, calls: dict[int, NetworkCall], ranks: Int64s) -> None:
        self.workload, self.lowered, self.stage, self.calls, self.ranks = workload, lowered, stage, calls, ranks
        self.rank = int(ranks[stage])
        self.names: dict[str, int] = {}
        self.groups: dict[tuple[tuple[int, ...], str], int] = {}
        self.axes: dict[Axis, int] = {}
        self.first = int(lowered.program.rank_start[stage])

    def events(self, times: OpTimes, host_begin: Floats) -> Events:
        """The stage's events by begin: launches on a thread of the host, kernels and calls on their streams."""
        program, ops = self.lowered.program, self.workload.ops
        here = times.rank == self.stage
        instance, op, start, end = (column[here] for column in (times.instance, times.op, times.start, times.end))
        at = self.first + instance.astype(np.int64)
        template = program.template[at]
        meets = op < 0
        meeting = (np.cumsum(program.template < 0) - 1)[at]
        place = np.where(meets, 0, program.template_start[np.maximum(template, 0)] + op)
        host = np.where(
            meets, program.rv_host[np.where(meets, meeting, 0)] if len(program.rv_host) else 0.0, program.op_host[place]
        )
        launched = _launch_times(instance, host, host_begin[at])
        row = np.where(meets, -1, self._rows()[place])
        shown = (row >= 0) & (end > start) | meets & self._is_network_call(meeting, meets)
        calls = shown & (meets | (ops.kind[np.maximum(row, 0)] == Kind.COMM))
        kernel = shown & ~calls
        count = len(start)
        name, comm, group = np.zeros(count, np.int32), np.zeros(count, np.uint8), np.full(count, -1, np.int32)
        size, sequence = np.full(count, np.nan), np.full(count, -1, np.int64)
        lane = np.where(
            meets, program.rv_stream[np.where(meets, meeting, 0)] if len(program.rv_stream) else 0, program.op_stream[place]
        )
        distinct, index = np.unique(row[kernel], return_inverse=True)
        labels = [self._name(kernel_name(int(ops.kind[r]), ops.names[r])) for r in distinct.tolist()]
        name[kernel] = np.array(labels, np.int32)[index] if len(labels) else 0
        for number in np.flatnonzero(calls).tolist():
            call, key = self._call(number, row, meeting, meets, instance)
            comm[number], size[number] = int(call.comm), call.size
            name[number] = self._name(NCCL_NAMES.get(call.comm, SEND_RECV_NAME))
            group[number] = self._transfer(call) if call.comm is Comm.SEND_RECV and key >= 0 else self._group(call.axis)
            sequence[number] = key if call.comm is Comm.SEND_RECV else -1
        waits = shown & self._host_waits(at, instance, meets, place)
        return self._join_events(shown, calls, waits, name, lane, start, end - start, comm, size, group, sequence, launched)

    def _host_waits(self, at: Int64s, instance: Int32s, meets: Bools, place: Int64s) -> Bools:
        """Which operators the host waits for: those that say so, and the last one of an instance that does."""
        program = self.lowered.program
        last = np.append(instance[1:] != instance[:-1], True) if len(instance) else np.zeros(0, bool)
        of_instance = last & ((program.flags[at] & HOST_SYNC) != 0)
        return np.asarray(of_instance | ~meets & (program.op_sync[place] != 0))

    def _rows(self) -> Int64s:
        """The workload's row of every operator of every template; -1 where it only waits."""
        program = self.lowered.program
        sizes = np.diff(program.template_start)
        parts = [
            np.full(n, -1, np.int64) if rows is None else rows for rows, n in zip(self.lowered.rows, sizes.tolist(), strict=True)
        ]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _is_network_call(self, meeting: Int64s, meets: Bools) -> Bools:
        """Which meetings are calls of the network, and not waits for a copy or a disk."""
        program = self.lowered.program
        if not meets.any():
            return meets
        keys = program.part_key[program.part_start[np.where(meets, meeting, 0)]]
        return np.isin(keys, np.array(list(self.calls), np.int64))

    def _call(self, number: int, row: Int64s, meeting: Int64s, meets: Bools, instance: Int32s) -> tuple[NetworkCall, int]:
        """The call of an event, and the key of its meeting (-1 for a call of a template)."""
        program, ops = self.lowered.program, self.workload.ops
        if meets[number]:
            key = int(program.part_key[int(program.part_start[int(meeting[number])])])
            return self.calls[key], key
        at = int(row[number])
        return NetworkCall(Comm(int(ops.comm[at])), Axis(int(ops.axis[at])), float(ops.bytes[at]), self.stage), -1

    def _transfer(self, call: NetworkCall) -> int:
        """The group of the two stages of a pipeline transfer."""
        source = int(call.stage or 0)
        target = (source + (-1 if call.back else 1)) % self.lowered.stages
        return self._number_of_group((int(self.ranks[source]), int(self.ranks[target])), "pp")

    def _group(self, axis: Axis) -> int:
        """The index of the group of an axis that the rank is in."""
        if axis not in self.axes:
            self.axes[axis] = self._looked_up(axis)
        return self.axes[axis]

    def _looked_up(self, axis: Axis) -> int:
        listed = members(self.workload.job, axis, self.stage)
        mine = listed[(listed == self.rank).any(axis=1)]
        return self._number_of_group(tuple(dict.fromkeys(mine[0].tolist())) if len(mine) else (self.rank,), axis_group(axis))

    def _number_of_group(self, ranks: tuple[int, ...], name: str) -> int:
        """The number of a communicator: two axes may have the same ranks."""
        return self.groups.setdefault((ranks, name), len(self.groups))

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _join_events(
        self, shown: Bools, calls: Bools, waits: Bools, name: Int32s, lane: Int32s, begin: Floats, seconds: Floats, comm: Uint8s,
        size: Floats, group: Int32s, sequence: Int64s, launched: Floats,
    ) -> Events:  # fmt: skip
        """Device events, a launch for each, and a synchronisation where the host waits for one; by begin."""
        number = np.arange(len(begin), dtype=np.int64)
        launch, sync = self._name("cudaLaunchKernel"), self._name("cudaStreamSynchronize")
        begun = np.minimum(launched, begin)
        end = begin + seconds
        since = np.minimum(begun + _LAUNCH_CALL, end)
        kind = np.where(calls, int(EventKind.CALL), int(EventKind.KERNEL)).astype(np.uint8)

        def all_of(device: Any, launches: Any, syncs: Any) -> Any:
            pairs = ((launches, shown), (syncs, waits))
            host = [np.broadcast_to(np.asarray(column, device.dtype), int(rows.sum())) for column, rows in pairs]
            return np.concatenate([device[shown], *host])

        begins = all_of(begin, begun[shown], since[waits])
        order = np.argsort(begins, kind="stable")
        columns = {
            "kind": all_of(kind, int(EventKind.LAUNCH), int(EventKind.SYNC)), "name": all_of(name, launch, sync),
            "lane": all_of(lane.astype(np.int32), _HOST_THREAD, _HOST_THREAD), "begin": begins,
            "seconds": all_of(seconds, _LAUNCH_CALL, (end - since)[waits]), "correlation": all_of(number, number[shown], -1),
            "external": all_of(np.full(len(begin), -1, np.int64), -1, -1), "comm": all_of(comm, 0, 0),
            "bytes": all_of(size, np.nan, np.nan), "group": all_of(group, -1, -1), "sequence": all_of(sequence, -1, -1),
            "peer": all_of(np.full(len(begin), -1, np.int32), -1, -1),
        }  # fmt: skip
        ordered = {key: column[order] for key, column in columns.items()}
        groups, names = zip(*self.groups, strict=True) if self.groups else ((), ())
        return Events(**ordered, names=tuple(self.names), groups=groups, group_names=names)


def _launch_times(instance: Int32s, host: Floats, since: Floats) -> Floats:
    """When the host began to launch each operator: its instance's time and the launches before it in the instance."""
    before = np.cumsum(host) - host
    opens = np.append(True, instance[1:] != instance[:-1]) if len(instance) else np.zeros(0, bool)
    return np.asarray(since + before - np.repeat(before[opens], np.diff(np.append(np.flatnonzero(opens), len(instance)))))
