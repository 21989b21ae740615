"""A trace graph, such as that of a captured job, as Chakra traces: a file for each of its ranks and `comm_group.json`."""

from __future__ import annotations

import json

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.exports.chakra.traces import CODES, encode_trace
from windtunnel.exports.exporters import Written
from windtunnel.formats.traces.chakra.node import COLLECTIVES, SECONDS, WORLD_SIZE, Attributes, ChakraNode
from windtunnel.records.trace_graph import TaskKind, TraceGraph

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
        nodes = [_node(graph, task, first, rank, world, float(lasting[task])) for task in range(first, last)]
        files[f"{prefix}.{rank}.et"] = encode_trace(nodes, {WORLD_SIZE: world})
    groups = {str(number + 1): list(ranks) for number, ranks in enumerate(graph.groups) if 1 < len(ranks) < world}
    files["comm_group.json"] = json.dumps(groups, separators=(",", ":")) + "\n"
    assumed = [f"durations are those of the replay in closed form; {SECONDS} has them exactly"]
    if graph.ranks < world:
        assumed.append(f"{graph.ranks} of {world} ranks, as captured: the others do as one of these")
    return Written(files, (), tuple(assumed))


def _node(graph: TraceGraph, task: int, first: int, rank: int, world: int, seconds: float) -> ChakraNode:
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
