"""A predicted step, or a trace graph such as that of a captured job, as Chakra execution traces: a file for each of its ranks and
`comm_group.json`. The nodes of a step are one list for each pipeline stage, which every rank of the stage shares but for its groups
and peers.

A job as Chakra traces: `PREFIX.<rank>.et` and `comm_group.json`, for ASTRA-sim, Chakra's own tools and `windtunnel replay`.

Nodes as bytes of a Chakra trace, schema v1.0 (which is v0.0.4 on the wire).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError
from windtunnel.engine import run
from windtunnel.exports.exporters import Written
from windtunnel.formats.traces.chakra.node import COLLECTIVES, NODE_TYPES, SECONDS, WORLD_SIZE, Attributes, ChakraNode, messages
from windtunnel.network.groups.shape import members
from windtunnel.predict.category import Task
from windtunnel.predict.price.calibrated import kernel_name
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall, NetworkCalls
from windtunnel.predict.program.lower import Lowered, lower
from windtunnel.predict.runs.setting import Setting
from windtunnel.records.trace_graph import TaskKind, TraceGraph
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


MOST_NODES = 4_000_000
"""Nodes of all files together beyond which an export of all ranks is refused; they take some minutes and 600 MB."""
CODES = {
    Comm.ALL_REDUCE: "ALL_REDUCE", Comm.ALL_GATHER: "ALL_GATHER", Comm.REDUCE_SCATTER: "REDUCE_SCATTER",
    Comm.ALL_TO_ALL: "ALL_TO_ALL", Comm.BROADCAST: "BROADCAST", Comm.REDUCE: "REDUCE", Comm.GATHER: "GATHER", Comm.SCATTER:
    "SCATTER",
}  # fmt: skip
OPTIONS = ("ranks", "prefix")


def export(job: Job, options: dict[str, str]) -> Written:
    """Traces of a predicted step. `ranks`: `all` (default), `stages` (the first rank of each pipeline stage, which stands for the
    others), or numbers such as `0,8,16`; `prefix`: how the files are called (`step`)."""
    for name in options:
        if name not in OPTIONS:
            raise SpecError("--option", name, ", ".join(f"{one}=…" for one in OPTIONS))
    stages, seconds = step_nodes(job)
    owners = stage_of_ranks(job)
    ranks = _ranks(options.get("ranks", "all"), owners, [len(nodes) for nodes in stages])
    prefix = options.get("prefix", "step")
    if not prefix or "/" in prefix:
        raise SpecError("--option prefix", prefix, "a name without a slash")
    groups = JobGroups(job)
    files: dict[str, str | bytes] = {}
    for rank in ranks:
        stage = int(owners[rank])
        nodes = [_node(at, one, rank, groups) for at, one in enumerate(stages[stage])]
        files[f"{prefix}.{rank}.et"] = encode_trace(nodes, {"step_seconds": seconds, WORLD_SIZE: len(owners)})
    groups.groups_of(Axis.PP)
    files["comm_group.json"] = json.dumps(groups.table(), separators=(",", ":")) + "\n"
    left = ["what the host launches, but where the device waited for it"]
    if any(node.kind == "COMP" and node.call == Comm.SEND_RECV for nodes in stages for node in nodes):
        left.append("sends inside layers (rings of context parallelism), which are written as computation of their length")
    assumed = [f"durations are those of the step predicted in closed form, {seconds:.6g} s; {SECONDS} has them exactly"]
    if len(ranks) < len(owners):
        assumed.append(f"{len(ranks)} of {len(owners)} ranks: each stands for those of its stage")
    return Written(files, tuple(left), tuple(assumed))


def stage_of_ranks(job: Job) -> np.ndarray:
    """Pipeline stage of every rank."""
    out = np.zeros(job.cluster.gpus, np.int64)
    for stage in range(job.plan.pp):
        out[members(job, Axis.PP, stage)[:, 0] if job.plan.pp > 1 else np.arange(job.cluster.gpus)] = stage
    return out


def _ranks(text: str, owners: np.ndarray, sizes: list[int]) -> list[int]:
    if text == "stages":
        return sorted(int(np.argmax(owners == stage)) for stage in range(int(owners.max()) + 1))
    if text == "all":
        total = int(np.array(sizes)[owners].sum())
        if total > MOST_NODES:
            raise SpecError(
                "--option ranks", text, f"traces of at most {MOST_NODES:,} nodes", f"These have {total:,}: write ranks=stages."
            )
        return list(range(len(owners)))
    numbers = text.split(",")
    if not all(one.strip().isdigit() and len(one) < 9 and int(one) < len(owners) for one in numbers):
        raise SpecError("--option ranks", text, f"all, stages, or numbers from 0 to {len(owners) - 1} such as 0,8")
    return sorted({int(one) for one in numbers})


class JobGroups:
    """Communicator groups by number from 1 on; all ranks have none."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.numbers: dict[tuple[int, ...], int] = {}
        self.places = [members(job, Axis.PP, stage)[:, 0] for stage in range(job.plan.pp)] if job.plan.pp > 1 else []
        self.of: dict[Axis, dict[int, tuple[int, ...]]] = {}

    def groups_of(self, axis: Axis) -> dict[int, tuple[int, ...]]:
        """The group of an axis that each rank is in."""
        if axis not in self.of:
            if axis == Axis.PP and self.job.plan.pp < 2:
                return {}
            rows = [tuple(sorted(set(row))) for row in members(self.job, axis).tolist()]
            self.of[axis] = {rank: row for row in rows for rank in row}
            for row in rows:
                if len(row) > 1 and len(row) < self.job.cluster.gpus:
                    self.numbers.setdefault(row, len(self.numbers) + 1)
        return self.of[axis]

    def stage_peer(self, rank: int, target: int) -> int:
        """The rank of another stage with the same place in it."""
        at = next(int(found[0]) for place in self.places if len(found := np.nonzero(place == rank)[0]))
        return int(self.places[target][at])

    def twins(self, rank: int) -> tuple[int, ...]:
        """A rank and its counterpart in the stage that holds a copy of the same parameters."""
        at = next(stage for stage, place in enumerate(self.places) if rank in place)
        row = tuple(sorted((rank, self.stage_peer(rank, len(self.places) - 1 - at))))
        self.numbers.setdefault(row, len(self.numbers) + 1)
        return row

    def table(self) -> dict[str, list[int]]:
        """comm_group.json."""
        return {str(number): list(row) for row, number in self.numbers.items()}


def _node(at: int, one: StepNode, rank: int, groups: JobGroups) -> ChakraNode:
    said: Attributes = {"is_cpu_op": one.on_host, SECONDS: float(one.seconds), "stream": one.stream}
    kind = one.kind
    if kind == "COMP":
        if one.flops > 0:
            said["num_ops"] = round(one.flops)
        if not one.on_host:
            said["tensor_size"] = max(1, round(one.size))
    elif kind == "COMM_COLL":
        group = groups.groups_of(one.axis).get(rank) or groups.twins(rank)
        share = len(group) if one.call == Comm.ALL_GATHER else 1
        said |= {"comm_type": COLLECTIVES.index(CODES[one.call]), "comm_size": max(1, round(one.size / share))}
        if len(group) < groups.job.cluster.gpus:
            said["pg_name"] = str(groups.numbers[group])
    else:
        peer = groups.stage_peer(rank, one.to)
        said |= {"comm_size": max(1, round(one.size)), "comm_tag": one.key % 2**31}
        said |= {"comm_src": rank, "comm_dst": peer} if kind == "COMM_SEND" else {"comm_src": peer, "comm_dst": rank}
    return ChakraNode(at, one.name, kind, list(one.deps), [], 0, round(one.seconds * 1e6), said)


VERSION = "0.0.4"


def encode_trace(nodes: Iterable[ChakraNode], metadata: Attributes | None = None) -> bytes:
    """A trace file: its metadata, then the nodes."""
    known = messages()
    first = known["GlobalMetadata"](version=VERSION.encode())
    _put(first, metadata or {})
    out = [frame_message(first.SerializeToString())]
    make = known["Node"]
    for node in nodes:
        raw = make(
            id=node.id, name=node.name.encode(), type=NODE_TYPES.index(node.kind), ctrl_deps=node.ctrl_deps,
            data_deps=node.data_deps, start_time_micros=node.start, duration_micros=node.micros,
        )  # fmt: skip
        _put(raw, node.attributes)
        out.append(frame_message(raw.SerializeToString()))
    return b"".join(out)


def frame_message(message: bytes) -> bytes:
    """A message with its length before it."""
    size = len(message)
    lead = bytearray()
    while size > 127:
        lead.append(size & 127 | 128)
        size >>= 7
    lead.append(size)
    return bytes(lead) + message


def _put(message: Any, attributes: Attributes) -> None:
    """Whole numbers as int64, as ASTRA-sim's own generators write them."""
    for name, value in attributes.items():
        one = message.attr.add(name=name.encode())
        if isinstance(value, bool):
            one.bool_val = value
        elif isinstance(value, int):
            one.int64_val = value
        elif isinstance(value, float):
            one.double_val = value
        elif isinstance(value, str):
            one.string_val = value.encode()
        elif isinstance(value, list):
            (one.bool_list if all(isinstance(v, bool) for v in value) else one.int64_list).values.extend(value)


_KINDS = {
    TaskKind.COMPUTE: "COMP", TaskKind.COLLECTIVE: "COMM_COLL", TaskKind.SEND: "COMM_SEND", TaskKind.RECEIVE: "COMM_RECV",
    TaskKind.LOAD: "MEM_LOAD", TaskKind.STORE: "MEM_STORE", TaskKind.MARK: "METADATA",
}  # fmt: skip


def graph_traces(graph: TraceGraph, seconds: Floats, world: int, prefix: str = "step") -> Written:
    """`PREFIX.<rank>.et` of each rank that the graph holds. `seconds` [N]: how long each task lasts; NaN: as its source states."""
    if not prefix or "/" in prefix:
        raise SpecError("--option prefix", prefix, "a name without a slash")
    lasting = np.nan_to_num(np.where(np.isfinite(seconds), seconds, graph.seconds))
    files: dict[str, str | bytes] = {}
    for place, rank in enumerate(graph.numbers.tolist()):
        first, last = int(graph.rank_start[place]), int(graph.rank_start[place + 1])
        nodes = [_task_node(graph, task, first, rank, world, float(lasting[task])) for task in range(first, last)]
        files[f"{prefix}.{rank}.et"] = encode_trace(nodes, {WORLD_SIZE: world})
    groups = {str(number + 1): list(ranks) for number, ranks in enumerate(graph.groups) if 1 < len(ranks) < world}
    files["comm_group.json"] = json.dumps(groups, separators=(",", ":")) + "\n"
    assumed = [f"durations are those of the replay in closed form; {SECONDS} has them exactly"]
    if graph.ranks < world:
        assumed.append(f"{graph.ranks} of {world} ranks, as captured: the others do as one of these")
    return Written(files, (), tuple(assumed))


def _task_node(graph: TraceGraph, task: int, first: int, rank: int, world: int, seconds: float) -> ChakraNode:
    said: Attributes = {"is_cpu_op": bool(graph.on_host[task]), SECONDS: seconds}
    if graph.lane[task] >= 0:
        said["stream"] = int(graph.lane[task])
    kind, size = TaskKind(int(graph.kind[task])), max(1, round(float(np.nan_to_num(graph.bytes[task]))))
    if kind == TaskKind.COMPUTE:
        if graph.flops[task] > 0:
            said["num_ops"] = round(float(graph.flops[task]))
        if not graph.on_host[task]:
            said["tensor_size"] = size
    elif kind == TaskKind.COLLECTIVE:
        group, call = int(graph.group[task]), Comm(int(graph.comm[task]))
        ranks = len(graph.groups[group])
        share = ranks if call == Comm.ALL_GATHER else 1
        said |= {"comm_type": COLLECTIVES.index(CODES[call]), "comm_size": max(1, round(size / share))}
        if ranks < world:
            said["pg_name"] = str(group + 1)
    elif kind in (TaskKind.SEND, TaskKind.RECEIVE):
        ends = (rank, int(graph.peer[task])) if kind == TaskKind.SEND else (int(graph.peer[task]), rank)
        said |= {"comm_size": size, "comm_tag": int(graph.tag[task]) % 2**31, "comm_src": ends[0], "comm_dst": ends[1]}
    deps = [int(dep) - first for dep in graph.deps[graph.dep_start[task] : graph.dep_start[task + 1]]]
    name = graph.names[int(graph.name[task])]
    return ChakraNode(task - first, name, _KINDS[kind], deps, [], 0, round(seconds * 1e6), said)
