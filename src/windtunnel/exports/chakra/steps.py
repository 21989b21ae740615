"""A predicted step as nodes: one list for each pipeline stage, which every rank of the stage shares but for its groups and
peers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.comm import Comm
from windtunnel.engine import run
from windtunnel.predict.category import Task
from windtunnel.predict.price.calibrated import kernel_name
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall, NetworkCalls
from windtunnel.predict.program.lower import Lowered, lower
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job, check
from windtunnel.workload import Axis, Kind, Stream, Workload, build

SLACK = 1e-12
"""Seconds of a gap before an operator below which its host was not late."""
_HOST = 63


class EveryCall(NetworkCalls):
    """Calls between passes, all of them by name, those of all ranks too."""

    def runs(self, axis: Axis) -> bool:
        return True


@dataclass(slots=True)
class StepNode:
    """A node of a stage. `kind`: Chakra's type; `deps`: indices of nodes before it; `axis` and `call` of a collective with `size`
    bytes; `to`: for messages the other stage, `key` what pairs them; `shape`: batch, m, n and k of a matrix product."""

    name: str
    kind: str
    seconds: float
    stream: int
    deps: list[int] = field(default_factory=list)
    on_host: bool = False
    flops: float = 0.0
    size: float = 0.0
    call: Comm = Comm.NONE
    axis: Axis = Axis.NONE
    to: int = -1
    key: int = -1
    shape: tuple[int, ...] = ()


def step_nodes(job: Job) -> tuple[list[list[StepNode]], float]:
    """Nodes of each stage of a step predicted in closed form, and its seconds. Durations are those of the run: computation that
    runs slower beside communication is written as slow as it ran; where the host was late a host node says by how much."""
    workload = build(check(job))
    costs = Setting().price(workload)
    live = EveryCall(costs.calls, live_key=None)
    lowered = lower(workload, costs, live)
    timeline = run(lowered.program, record_ops=range(lowered.stages), critical_path=False)
    table = dict(zip(*(column.tolist() for column in live.table()), strict=True))
    calls = list(live.calls)
    times = timeline.recorded
    out = []
    for stage in range(lowered.stages):
        here = times.rank == stage
        writer = _StageWriter(workload, lowered, stage, {key: calls[at] for key, at in table.items()}, costs.calls)
        out.append(writer.write(times.instance[here], times.op[here], times.start[here], times.end[here]))
    _pair(out)
    return out, timeline.makespan


def _pair(stages: list[list[StepNode]]) -> None:
    """Writes into every message the stage at its other end: the one that has the same key."""
    ends: dict[tuple[int, str], int] = {}
    for stage, nodes in enumerate(stages):
        for node in nodes:
            if node.key >= 0:
                ends[node.key, node.kind] = stage
    for nodes in stages:
        for node in nodes:
            if node.key >= 0:
                node.to = ends[node.key, "COMM_RECV" if node.kind == "COMM_SEND" else "COMM_SEND"]


class _StageWriter:
    """Walks a stage's program beside its recorded times."""

    def __init__(self, workload: Workload, lowered: Lowered, stage: int, calls: dict[int, NetworkCall], book: CallBook) -> None:
        self.workload, self.lowered, self.stage, self.calls = workload, lowered, stage, calls
        self.program, self.ops, self.book = lowered.program, workload.ops, book
        self.first = int(self.program.rank_start[stage])
        self.labels = lowered.labels[stage].tolist()
        meets = np.cumsum(self.program.template < 0) - 1
        self.meeting = meets[self.first : int(self.program.rank_start[stage + 1])]
        self.nodes: list[StepNode] = []
        self.ends: list[float] = []
        self.tail: dict[int, int] = {}  # last node of each stream
        self.last: dict[int, list[int]] = {}  # last nodes of each instance, by stream
        self.host = -1
        self.host_end = 0.0

    def write(self, instances: np.ndarray, ops: np.ndarray, start: Floats, end: Floats) -> list[StepNode]:
        """All nodes, in the program's order."""
        at = 0
        rows = list(zip(instances.tolist(), ops.tolist(), start.tolist(), end.tolist(), strict=True))
        while at < len(rows):
            instance = rows[at][0]
            until = at
            while until < len(rows) and rows[until][0] == instance:
                until += 1
            waits = self._waits(instance)
            if rows[at][1] < 0:
                self._meet(instance, rows[at][2], rows[at][3], waits)
            else:
                self._template(instance, rows[at:until], waits)
            at = until
        return self.nodes

    def _waits(self, instance: int) -> list[int]:
        row = self.first + instance
        waits = self.program.waits[self.program.wait_start[row] : self.program.wait_start[row + 1]].tolist()
        return [node for wait in waits for node in self.last.get(wait, [])]

    def _template(self, instance: int, rows: list[tuple[int, int, float, float]], waits: list[int]) -> None:
        row = self.first + instance
        template = int(self.program.template[row])
        base = int(self.program.template_start[template])
        size = int(self.program.template_start[template + 1]) - base
        joins = bool(self.program.flags[row] & 2)
        made: dict[int, int] = {}
        gate = waits
        seen: set[int] = set()
        before: dict[int, int] = {}
        for number, (_, op, start, end) in enumerate(rows):
            if number and number % size == 0:
                gate, before = ([*before.values()] if joins else gate), {}
                seen = set() if joins else seen
                made = {}
            stream = int(self.program.op_stream[base + op])
            deps = [made[w] for w in (int(self.program.op_wait0[base + op]), int(self.program.op_wait1[base + op])) if w >= 0]
            if stream not in seen:
                deps += gate
                seen.add(stream)
            node = self._of_row(template, op, end - start, stream)
            made[op] = before[stream] = self._add(node, deps, start, end)
        self.last[instance] = list({**before}.values())

    def _of_row(self, template: int, op: int, seconds: float, stream: int) -> StepNode:
        """The node of a row of the workload, or of an operator that only waits or copies."""
        rows = self.lowered.rows[template]
        row = int(rows[op]) if rows is not None else -1
        if row < 0:
            return StepNode("wait", "COMP", seconds, stream, on_host=stream != Stream.COMPUTE)
        name = self.ops.names[row]
        if self.ops.kind[row] != Kind.COMM:
            full = kernel_name(int(self.ops.kind[row]), name)
            sides = (self.ops.batch, self.ops.m, self.ops.n, self.ops.k)
            product = self.ops.kind[row] in (Kind.GEMM, Kind.GROUPED_GEMM)
            shape = tuple(int(side[row]) for side in sides) if product else ()
            flops, size = float(self.ops.flops[row]), float(self.ops.bytes[row])
            return StepNode(full, "COMP", seconds, stream, flops=flops, size=size, shape=shape)
        comm, axis = Comm(int(self.ops.comm[row])), Axis(int(self.ops.axis[row]))
        if comm == Comm.SEND_RECV or self.book.group(axis).ranks < 2:
            return StepNode(name, "COMP", seconds, stream)
        return StepNode(name, "COMM_COLL", seconds, stream, size=float(self.ops.bytes[row]), call=comm, axis=axis)

    def _meet(self, instance: int, start: float, end: float, waits: list[int]) -> None:
        at = int(self.meeting[instance])
        part = int(self.program.part_start[at])
        key, seconds = int(self.program.part_key[part]), float(self.program.part_seconds[part])
        stream, task = int(self.program.rv_stream[at]), Task(self.labels[instance][0])
        call = self.calls.get(key) or self._call_of_seconds(seconds)
        name = task.key
        if call.comm != Comm.SEND_RECV:
            kind = "COMM_COLL" if self.book.group(call.axis).ranks > 1 else "COMP"
            node = StepNode(name, kind, seconds, stream, size=call.size, call=call.comm, axis=call.axis)
            self.last[instance] = [self._add(node, waits, start, end)]
            return
        sends = task == Task.SEND
        node = StepNode(name, "COMM_SEND" if sends else "COMM_RECV", seconds - call.extra, stream, size=call.size, call=call.comm,
                        axis=Axis.PP, key=key)  # fmt: skip
        done = self._add(node, waits, start, end - call.extra)
        if call.extra > 0:  # the receiver's tensor-parallel ranks gather what each of them got a part of
            gather = StepNode("gather", "COMP" if sends else "COMM_COLL", call.extra, stream, on_host=sends,
                              size=self.workload.boundary, call=Comm.ALL_GATHER, axis=Axis.TP)  # fmt: skip
            done = self._add(gather, [done], end - call.extra, end)
        self.last[instance] = [done]

    def _call_of_seconds(self, seconds: float) -> NetworkCall:
        """The call between stages that takes so long: of a meeting that no network would carry."""
        for key in self.lowered.calls[self.stage]:
            if self.book.price_of(key).seconds == seconds:
                return NetworkCall(key.comm, key.axis, key.size, self.stage)
        return NetworkCall(Comm.ALL_REDUCE, Axis.EMBEDDING, 0.0, self.stage)

    def _add(self, node: StepNode, deps: list[int], start: float, end: float) -> int:
        """Appends a node; where nothing before it explains its start, a host node before it does."""
        known = [*deps, self.tail[node.stream]] if node.stream in self.tail else deps
        ready = max((self.ends[one] for one in known), default=0.0)
        if start - ready > SLACK and start > self.host_end:
            launch = StepNode("host", "COMP", start - self.host_end, _HOST, [self.host] if self.host >= 0 else [], on_host=True)
            self.nodes.append(launch)
            self.ends.append(start)
            self.host, self.host_end = len(self.nodes) - 1, start
        if start - ready > SLACK:
            deps = [*deps, self.host]
        node.deps = sorted(set(deps))
        self.nodes.append(node)
        self.ends.append(end)
        self.tail[node.stream] = len(self.nodes) - 1
        return len(self.nodes) - 1


__all__ = ["StepNode", "step_nodes"]
