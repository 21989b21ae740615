"""The ranks of a Chakra trace as one trace graph. One rank's trace, node by node, into columns; and what was counted on the way."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Int64s, Uint8s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.traces.chakra.framing import Bytes, Frames, TraceSource, open_source
from windtunnel.formats.traces.chakra.groups import LARGEST_RANK, WORLD, groups_of, groups_of_metadata
from windtunnel.formats.traces.chakra.node import (
    COLLECTIVES,
    SECONDS,
    WORLD_SIZE,
    ChakraNode,
    Schema,
    metadata_of,
    reader,
    schema_of,
)
from windtunnel.records.trace_graph import TaskKind, TraceGraph

PEEK = 2**18
ALL_DIMENSIONS = -1


@dataclass
class Counts:
    """Figures of one rank, or summed over ranks."""

    nodes: int = 0
    cpu_ops: int = 0
    data_edges: int = 0
    ctrl_edges: int = 0
    missing_deps: int = 0
    num_ops: int = 0
    comp_tensor_bytes: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    micros: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    call_bytes: Counter[str] = field(default_factory=Counter)
    p2p: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Adds another rank's figures."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, mine + value)


@dataclass
class RankColumns:
    """Nodes of a rank in the order of the file. Dependencies are ids, cut at `dep_start`."""

    names: dict[str, int]  # shared by the ranks of a trace
    ids: array[int] = field(default_factory=lambda: array("Q"))
    name: array[int] = field(default_factory=lambda: array("i"))
    kind: list[str] = field(default_factory=list)
    on_host: bytearray = field(default_factory=bytearray)
    start: array[int] = field(default_factory=lambda: array("Q"))
    micros: array[int] = field(default_factory=lambda: array("Q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))  # ours, NaN where it is not written
    flops: array[float] = field(default_factory=lambda: array("d"))
    size: array[float] = field(default_factory=lambda: array("d"))  # comm_size, or tensor_size; NaN unknown
    call: array[int] = field(default_factory=lambda: array("i"))  # CollectiveCommType, -1 none
    group: list[str] = field(default_factory=list)
    peer: array[int] = field(default_factory=lambda: array("q"))
    tag: array[int] = field(default_factory=lambda: array("q"))
    lane: array[int] = field(default_factory=lambda: array("q"))  # `stream`, -1 where it is not written
    priority: array[int] = field(default_factory=lambda: array("q"))
    involved: array[int] = field(default_factory=lambda: array("q"))  # bits of the dimensions, ALL_DIMENSIONS where not written
    dep_start: array[int] = field(default_factory=lambda: array("q", [0]))
    deps: array[int] = field(default_factory=lambda: array("Q"))
    counts: Counts = field(default_factory=Counts)
    metadata: dict[str, Any] = field(default_factory=dict)
    process_groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    schema: Schema = Schema.CURRENT
    broken: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


def read_rank(stream: Bytes, source: str, names: dict[str, int]) -> RankColumns:
    """Reads a stream to its end, or to where it breaks off. FileError where it is no Chakra trace at all."""
    import io

    head = _peek(stream, source)
    schema = schema_of(head, len(head) < PEEK)
    if schema is None:
        raise FileError(source, repr(head[:24]), "a Chakra execution trace (.et)")
    columns = RankColumns(names, schema=schema)
    frames = Frames(_Joined(io.BytesIO(head), stream))
    read, lost = reader(schema), 0
    for at, message in enumerate(frames):
        try:
            if at == 0 and schema is Schema.CURRENT:
                columns.metadata = metadata_of(message)
            else:
                _add(columns, read(message))
        except ValueError:
            lost += 1
    if lost:
        columns.broken.append(f"{source}: {lost} of {frames.count} messages are no nodes")
    if frames.cut:
        columns.broken.append(f"{source}: {frames.cut}; {len(columns)} nodes before it were read")
    return columns


class _Joined:
    """A stream with the bytes in front of it that were looked at already."""

    def __init__(self, head: Bytes, rest: Bytes) -> None:
        self.head, self.rest = head, rest

    def read(self, size: int, /) -> bytes:
        data = self.head.read(size)
        return data if len(data) == size else data + self.rest.read(size - len(data))


def _peek(stream: Bytes, source: str) -> bytes:
    import zlib

    try:
        return stream.read(PEEK)
    except (EOFError, OSError, zlib.error) as error:
        raise FileError(source, f"a broken stream ({error})", "a Chakra execution trace (.et)") from None


def _add(columns: RankColumns, node: ChakraNode) -> None:
    nan = float("nan")
    said = node.attributes
    call = node.whole_number("comm_type") if node.kind == "COMM_COLL" else None
    communicates = node.kind in ("COMM_COLL", "COMM_SEND", "COMM_RECV")
    size = node.number("comm_size" if communicates else "tensor_size")
    peer = node.whole_number("comm_src" if node.kind == "COMM_RECV" else "comm_dst")
    group = str(said.get("pg_name") or "")
    columns.ids.append(node.id)
    columns.name.append(columns.names.setdefault(node.name, len(columns.names)))
    columns.kind.append(node.kind)
    columns.on_host.append(node.on_host)
    columns.start.append(node.start)
    columns.micros.append(node.micros)
    columns.seconds.append(_not_negative(node.number(SECONDS)))
    columns.flops.append(_not_negative(node.number("num_ops")))
    columns.size.append(nan if size is None else _not_negative(size))
    columns.call.append(call if call is not None and 0 <= call < len(COLLECTIVES) else -1)
    columns.group.append(group or WORLD)
    columns.peer.append(-1 if peer is None or not communicates else peer)
    columns.tag.append(node.whole_number("comm_tag") or 0)
    stream = node.whole_number("stream")
    columns.lane.append(-1 if stream is None or stream < 0 or stream >= 2**31 else stream)
    columns.priority.append(node.whole_number("comm_priority") or 0)
    columns.involved.append(_bits(said.get("involved_dim")))
    columns.deps.extend(node.data_deps)
    columns.deps.extend(node.ctrl_deps)
    columns.dep_start.append(len(columns.deps))
    if node.kind == "METADATA" and node.values:
        columns.process_groups |= groups_of_metadata(node.values)
    _count(columns.counts, node, call, size, group)


def _count(counts: Counts, node: ChakraNode, call: int | None, size: float | None, group: str) -> None:
    counts.nodes += 1
    counts.cpu_ops += node.on_host
    counts.data_edges += len(node.data_deps)
    counts.ctrl_edges += len(node.ctrl_deps)
    counts.by_type[node.kind] += 1
    if node.micros:
        counts.micros[node.kind] += node.micros
    counts.attributes.update(list(node.attributes))
    whole = int(size) if size is not None and abs(size) < 2**63 else 0
    if node.kind == "COMM_COLL":
        name = COLLECTIVES[call] if call is not None and 0 <= call < len(COLLECTIVES) else "None"
        counts.calls[name] += 1
        counts.call_bytes[name] += whole
        if group:
            counts.groups[group] += 1
    elif node.kind in ("COMM_SEND", "COMM_RECV"):
        counts.p2p[f"{node.kind}_bytes"] += whole
    elif node.kind == "COMP":
        counts.num_ops += node.whole_number("num_ops") or 0
        counts.comp_tensor_bytes += whole


def _not_negative(value: float | None) -> float:
    return float(value) if value is not None and 0 <= value < float("inf") else float("nan")


def _bits(listed: object) -> int:
    """Dimensions of a collective as bits; all where nothing is said."""
    if not isinstance(listed, list) or not listed:
        return ALL_DIMENSIONS
    return sum(1 << at for at, one in enumerate(listed[:62]) if one)


COMMS = {
    "ALL_REDUCE": Comm.ALL_REDUCE, "REDUCE": Comm.REDUCE, "ALL_GATHER": Comm.ALL_GATHER, "GATHER": Comm.GATHER,
    "SCATTER": Comm.SCATTER, "BROADCAST": Comm.BROADCAST, "ALL_TO_ALL": Comm.ALL_TO_ALL, "REDUCE_SCATTER": Comm.REDUCE_SCATTER,
    "REDUCE_SCATTER_BLOCK": Comm.REDUCE_SCATTER, "BARRIER": Comm.ALL_REDUCE,
}  # fmt: skip
BARRIER_BYTES = 4.0
"""A barrier is an all-reduce of 4 bytes (base.comm)."""
_KINDS = {
    "MEM_LOAD": TaskKind.LOAD, "MEM_STORE": TaskKind.STORE, "COMP": TaskKind.COMPUTE, "COMM_SEND": TaskKind.SEND,
    "COMM_RECV": TaskKind.RECEIVE, "COMM_COLL": TaskKind.COLLECTIVE,
}  # fmt: skip


@dataclass(frozen=True)
class ChakraTrace:
    """A trace graph, and beside it what only ASTRA-sim asks for, in the same order [N]: `call` (CollectiveCommType, -1 none),
    `size` (comm_size or tensor_size as written, -1 unknown), `micros`, `priority` and `involved` (bits of the dimensions, -1
    all)."""

    graph: TraceGraph
    call: Int64s
    size: Int64s
    micros: Int64s
    priority: Int64s
    involved: Int64s
    group_names: tuple[str, ...]
    counts: Counts
    first: Counts  # of the first rank
    metadata: Mapping[str, object]
    schemas: tuple[str, ...]
    assumed: tuple[str, ...]
    broken: tuple[str, ...]


def read_trace(
    source: TraceSource,
    groups: Mapping[str, tuple[int, ...]] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> ChakraTrace:
    """Reads all ranks of a trace. `groups`: ranks of communicators by name, over those that the source itself holds."""
    names: dict[str, int] = {}
    ranks: list[RankColumns] = []
    for done, one in enumerate(source.ranks):
        if progress is not None:
            progress("ranks", done, len(source.ranks))
        with open_source(one) as stream:
            ranks.append(read_rank(stream, one.name, names))
    known: dict[str, tuple[int, ...]] = {}
    for columns in ranks:
        known |= columns.process_groups
    said = ranks[0].metadata.get(WORLD_SIZE)
    if isinstance(said, int) and 0 < said <= LARGEST_RANK:
        known[WORLD] = tuple(range(said))
    if source.groups:
        known |= groups_of(source.groups.decode("utf-8", "replace"), f"{source.ranks[0].path}: comm_group JSON")
    return _join_ranks(ranks, np.array([max(0, one.rank) for one in source.ranks], np.int64), names, known | dict(groups or {}))


def _join_ranks(
    ranks: list[RankColumns], numbers: Int64s, names: dict[str, int], known: Mapping[str, tuple[int, ...]]
) -> ChakraTrace:
    sizes = [len(rank) for rank in ranks]
    base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def column(name: str, kind: type) -> np.ndarray:
        parts: list[np.ndarray] = [np.array(getattr(rank, name), kind) for rank in ranks]
        return np.concatenate(parts) if parts else np.zeros(0, kind)

    deps, dep_start, missing, own_edges = _dependencies(ranks, base)
    written = np.array([one for rank in ranks for one in rank.kind], dtype=object)
    call = column("call", np.int64)
    on_host = column("on_host", np.uint8).astype(np.bool_)
    kind, notes = _kinds(written, call)
    own, micros = column("seconds", np.float64), column("micros", np.int64)
    flops, size = column("flops", np.float64), column("size", np.float64)
    timed = (micros > 0) | (kind == TaskKind.COMPUTE) & ~(flops > 0)
    seconds = np.where(np.isfinite(own), own, np.where(timed, micros * 1e-6, np.nan))
    group, groups, group_names, guessed = _groups([one for rank in ranks for one in rank.group], kind, numbers, known)
    comm = np.array([COMMS[COLLECTIVES[code]] if code >= 0 else 0 for code in call.tolist()], np.uint8)
    lengths = np.array([len(one) for one in groups] or [1], np.float64)
    bytes_ = np.where((call == COLLECTIVES.index("ALL_GATHER")) & (group >= 0), size * lengths[np.maximum(group, 0)], size)
    bytes_ = np.where(call == COLLECTIVES.index("BARRIER"), BARRIER_BYTES, bytes_)
    counts = Counts()
    for rank, lost in zip(ranks, missing, strict=True):
        rank.counts.missing_deps = lost
        counts.add(rank.counts)
    lane, ordered = _lanes(column("lane", np.int64), deps, dep_start)
    graph = TraceGraph(
        rank_start=base, name=column("name", np.int32), kind=kind, on_host=on_host, lane=lane.astype(np.int32),
        seconds=seconds, flops=flops, bytes=bytes_,
        comm=np.where(kind == TaskKind.COLLECTIVE, comm, 0).astype(np.uint8), group=group.astype(np.int32),
        peer=column("peer", np.int64).astype(np.int32), tag=column("tag", np.int64), dep_start=dep_start, deps=deps,
        names=tuple(names), groups=groups, begin=_begin(ranks), ids=column("ids", np.uint64).astype(np.int64),
        rank_ids=numbers if (numbers != np.arange(len(numbers))).any() else np.empty(0, np.int64),
    )  # fmt: skip
    assumed = [*notes, *guessed]
    if own_edges:
        assumed.append(f"{own_edges} dependencies go round in circles; of each circle those on later nodes were left out")
    if not ordered:
        assumed.append("the file's order is no order of its dependencies, so the streams that it names are not kept in order")
    return ChakraTrace(
        graph, call, np.where(np.isfinite(size), size, -1).astype(np.int64), micros, column("priority", np.int64),
        column("involved", np.int64), group_names, counts, ranks[0].counts, ranks[0].metadata,
        tuple(sorted({rank.schema.name.lower() for rank in ranks})), tuple(assumed),
        tuple(b for rank in ranks for b in rank.broken),
    )  # fmt: skip


def _dependencies(ranks: list[RankColumns], base: Int64s) -> tuple[Int64s, Int64s, list[int], int]:
    """Dependencies as indices of the graph, their offsets, how many of each rank point at ids that the file does not hold, and how
    many were left out since they close a circle."""
    parts: list[Int64s] = []
    lengths: list[Int64s] = []
    missing: list[int] = []
    own = 0
    for rank, first in zip(ranks, base[:-1].tolist(), strict=True):
        ids, wanted = np.array(rank.ids, np.uint64), np.array(rank.deps, np.uint64)
        order = np.argsort(ids, kind="stable")
        at = np.searchsorted(ids[order], wanted)
        exists = (at < len(ids)) & (ids[order][np.minimum(at, max(0, len(ids) - 1))] == wanted) if len(ids) else wanted < 0
        owner = np.repeat(np.arange(len(rank)), np.diff(np.asarray(rank.dep_start, np.int64)).astype(np.int64))
        missing.append(int((~exists).sum()))
        target = order[at[exists]] if len(ids) else np.zeros(0, np.int64)
        owner = owner[exists]
        other = ~_circular(owner, target, len(rank))
        own += int((~other).sum())
        parts.append(target[other] + first)
        lengths.append(np.bincount(owner[other], minlength=len(rank)))
    deps = np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
    return deps, np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64), missing, own


def _circular(owner: Int64s, target: Int64s, count: int) -> Bools:
    """Which edges close a circle, as some of PyTorch's traces have them: those on the node itself, and inside a strongly connected
    part those on a later node."""
    if not (target >= owner).any():
        return np.zeros(len(owner), np.bool_)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(owner), np.int8), (owner, target)), shape=(count, count))
    _, part = connected_components(edges, directed=True, connection="strong")
    return np.asarray((target >= owner) & (part[owner] == part[target]), np.bool_)


def _kinds(written: np.ndarray, call: Int64s) -> tuple[Uint8s, list[str]]:
    kind = np.array([_KINDS.get(name, TaskKind.MARK) for name in written.tolist()], np.uint8)
    notes = []
    unknown = (kind == TaskKind.COLLECTIVE) & (call < 0)
    if unknown.any():
        kind[unknown] = TaskKind.COMPUTE
        notes.append(f"{int(unknown.sum())} collectives without comm_type take the time that the trace gives them, and meet nobody")
    return kind, notes


def _groups(
    written: list[str], kind: Uint8s, numbers: Int64s, known: Mapping[str, tuple[int, ...]]
) -> tuple[Int64s, tuple[tuple[int, ...], ...], tuple[str, ...], list[str]]:
    """Index of each collective's group, the groups, their names, and what was assumed about them."""
    world = tuple(int(n) for n in numbers) or (0,)
    if known:
        most = max(max(ranks) for ranks in known.values())
        world = tuple(range(max(most, *world) + 1)) if most > max(world) else world
    found: dict[str, tuple[int, ...]] = {WORLD: known.get(WORLD) or world}
    unknown: set[str] = set()
    index = np.full(len(written), -1, np.int64)
    order = {WORLD: 0}
    for at in np.nonzero(kind == TaskKind.COLLECTIVE)[0].tolist():
        name = written[at]
        if name not in order:
            order[name] = len(order)
            if name not in known:
                unknown.add(name)
            found[name] = known.get(name, world)
        index[at] = order[name]
    found |= {name: ranks for name, ranks in known.items() if name not in found}
    notes = []
    if unknown:
        notes.append(f"process groups {', '.join(sorted(unknown)[:6])} are not described, so they are all ranks of the trace")
    return index, tuple(found.values()), tuple(found), notes


def _lanes(stream: Int64s, deps: Int64s, dep_start: Int64s) -> tuple[Int64s, bool]:
    """Streams as lanes where the file's order is one in which they can run, else none."""
    named = stream >= 0
    owner = np.repeat(np.arange(len(stream)), np.diff(dep_start).astype(np.int64))
    if not named.any():
        return np.full(len(stream), -1, np.int64), True
    if (deps >= owner).any():
        return np.full(len(stream), -1, np.int64), False
    return np.where(named, stream, -1), True


def _begin(ranks: list[RankColumns]) -> np.ndarray:
    """Measured begins in seconds from each rank's first, or nothing where the trace has none."""
    parts = [np.array(rank.start, np.float64) for rank in ranks]
    if not any((part > 0).any() for part in parts):
        return np.empty(0)
    return np.concatenate([(part - (part.min() if len(part) else 0.0)) * 1e-6 for part in parts])
