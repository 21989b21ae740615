"""The ranks of a Chakra trace as one trace graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Bools, Int64s, Uint8s
from windtunnel.base.comm import Comm
from windtunnel.formats.traces.chakra.groups import LARGEST_RANK, WORLD, groups_of
from windtunnel.formats.traces.chakra.node import WORLD_SIZE
from windtunnel.formats.traces.chakra.rank import Counts, RankColumns, read_rank
from windtunnel.formats.traces.chakra.schema import COLLECTIVES
from windtunnel.formats.traces.chakra.source import TraceSource, open_source
from windtunnel.records.trace_graph import TaskKind, TraceGraph

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
