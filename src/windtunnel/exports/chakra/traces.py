"""A job as Chakra traces: `PREFIX.<rank>.et` and `comm_group.json`, for ASTRA-sim, Chakra's own tools and `windtunnel replay`.

Nodes as bytes of a Chakra trace, schema v1.0 (which is v0.0.4 on the wire).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.exports.chakra.steps import StepNode, step_nodes
from windtunnel.exports.exporters import Written
from windtunnel.formats.traces.chakra.node import COLLECTIVES, NODE_TYPES, SECONDS, WORLD_SIZE, Attributes, ChakraNode, messages
from windtunnel.network.groups.ranks import members
from windtunnel.spec import Job
from windtunnel.workload import Axis

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
