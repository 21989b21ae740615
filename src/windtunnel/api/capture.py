"""An unedited training script on a cluster that isn't there: what it does, how long that takes, and what memory it holds.

Memory of a captured rank over its last step, by content and by module: a replay of its allocations through PyTorch's allocator.

What a tensor holds follows from when it is allocated and freed: before the first step it is a weight; in an update and for longer
it is state of the optimizer; in a backward pass and for longer a gradient; in a forward pass and beyond it an activation; what goes
where it came is temporary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED
from windtunnel.base.options import asks
from windtunnel.capture.options import CaptureOptions
from windtunnel.formats.traces.pytorch_et.nodes import ATTENTIONS, PRODUCTS
from windtunnel.memory.allocator import CachingAllocator, PoolBlock, settings_of
from windtunnel.memory.habits import cublas_bytes
from windtunnel.memory.lifetimes import TensorContent
from windtunnel.memory.over_time import PARTS, OverTime
from windtunnel.records.capture_file import (
    COMPILED,
    COMPILED_END,
    OPTIMIZER,
    OPTIMIZER_END,
    STEP,
    CapturedRank,
    EntryKind,
    captured_files,
    read_captured,
    steps_of,
)

if TYPE_CHECKING:
    from windtunnel.exports.exporters import Written
    from windtunnel.replay.result import ReplayResult
    from windtunnel.spec.machine import Cluster


BEFORE, FORWARD, BACKWARD, UPDATE = range(4)
"""Parts of a job in which a tensor is allocated or freed."""


@dataclass(frozen=True)
class HeldByModule:
    """Bytes and tensors at the highest moment that a module (empty: none) allocated, by content."""

    module: str
    content: str
    bytes: int
    tensors: int


@dataclass(frozen=True)
class CapturedMoments:
    """A rank's memory over its last step."""

    rank: int
    moments: OverTime
    highest: tuple[HeldByModule, ...]
    """At the step's highest moment, most bytes first."""


def passes_of_entries(rank: CapturedRank) -> Int64s:
    """[E] in which part of the job each entry lies: BEFORE, FORWARD, BACKWARD or UPDATE."""
    entries = rank.entries
    passes = np.where(entries["backward"] > 0, BACKWARD, FORWARD).astype(np.int64)
    marks = np.flatnonzero(entries["kind"] == EntryKind.MARK)
    begun = -1
    first = len(entries)
    for mark in marks.tolist():
        name = rank.texts[int(entries["name"][mark])]
        if name == STEP:
            first = min(first, mark)
        elif name == OPTIMIZER:
            begun = mark
        elif name == OPTIMIZER_END and begun >= 0:
            passes[begun:mark] = UPDATE
            begun = -1
    passes[:first] = BEFORE
    return passes


def memory_entries(rank: CapturedRank) -> Int64s:
    """Numbers of the entries that allocate and free: without what a compiled function without products, attention or calls frees
    itself. Inductor makes a kernel of such a function, which holds it in registers."""
    entries, marks = rank.entries, {COMPILED: 1, COMPILED_END: -1}
    in_memory = np.isin(entries["kind"], (EntryKind.ALLOCATE, EntryKind.FREE))
    large = np.array([text.partition(".")[0] in (*PRODUCTS, *ATTENTIONS) for text in rank.texts] + [False])[entries["name"]]
    large = large & (entries["kind"] == EntryKind.OPERATOR) | (entries["kind"] == EntryKind.CALL)
    depth = begun = 0
    for mark in np.flatnonzero(entries["kind"] == EntryKind.MARK).tolist():
        change = marks.get(rank.texts[int(entries["name"][mark])], 0)
        begun = mark if change > 0 and depth == 0 else begun
        depth += change
        if change < 0 and depth == 0 and not large[begun:mark].any():
            made: dict[int, int] = {}
            for number in (begun + np.flatnonzero(in_memory[begun:mark])).tolist():
                address = int(entries["a"][number])
                if entries["kind"][number] == EntryKind.ALLOCATE:
                    made[address] = number
                elif address in made:
                    in_memory[made.pop(address)] = in_memory[number] = False
    return np.flatnonzero(in_memory)


def product_streams(rank: CapturedRank) -> list[int]:
    """Streams with matrix products, on each of which PyTorch allocates a workspace of cuBLAS with the first one."""
    entries = rank.entries[rank.entries["kind"] == EntryKind.OPERATOR]
    products = [number for number, text in enumerate(rank.texts) if text.partition(".")[0] in PRODUCTS]
    return sorted(set(entries["stream"][np.isin(entries["name"], products)].tolist()))


def moments_of(rank: CapturedRank, entry_seconds: Floats, capacity: float, workspace: float = 0.0) -> CapturedMoments:
    """`entry_seconds`: when in the replayed step the host is at each entry of the last step; `workspace`: bytes of cuBLAS's."""
    entries, passes = rank.entries, passes_of_entries(rank)
    window = steps_of(rank)[-1]
    memory = memory_entries(rank)
    memory = memory[memory < window.stop]
    contents = _contents(entries, passes, memory)
    pool = CachingAllocator(limit=math.inf)
    live: dict[int, tuple[PoolBlock, int]] = {}  # by address: the block, and the entry that made it
    parts = np.zeros(len(PARTS))
    streams = product_streams(rank) if workspace else []
    for stream in streams:
        pool.malloc(workspace, stream)
        parts[TensorContent.BUFFERS] += workspace
    times, levels, reserved = [0.0], list[Floats](), list[float]()
    peak, at_peak = -1.0, list[int]()
    for number in memory.tolist():
        address, size = int(entries["a"][number]), int(entries["b"][number])
        if number >= window.start and not levels:
            levels.append(parts.copy())
            reserved.append(float(pool.reserved))
            peak, at_peak = float(parts.sum()), [made for _, made in live.values()]
        if entries["kind"][number] == EntryKind.ALLOCATE:
            live[address] = pool.malloc(size, int(entries["stream"][number])), number
            parts[contents[number]] += size
        elif address in live:
            block, made = live.pop(address)
            pool.free(block)
            parts[contents[made]] -= size
        if number >= window.start:
            times.append(float(entry_seconds[number - window.start]))
            levels.append(parts.copy())
            reserved.append(float(pool.reserved))
            if parts.sum() > peak:
                peak, at_peak = float(parts.sum()), [made for _, made in live.values()]
    if not levels:
        levels, reserved, at_peak = [parts.copy()], [float(pool.reserved)], [made for _, made in live.values()]
    moments = OverTime(
        int(rank.about["rank"]), np.maximum.accumulate(np.array(times)), np.array(levels), np.array(reserved), 0.0, capacity
    )
    held = _held_by_module(rank, at_peak, contents)
    if streams:
        held = (*held, HeldByModule("", PARTS[TensorContent.BUFFERS], round(workspace * len(streams)), len(streams)))
    return CapturedMoments(int(rank.about["rank"]), moments, tuple(sorted(held, key=lambda module: -module.bytes)))


def _contents(entries: np.ndarray, passes: Int64s, memory: Int64s) -> dict[int, int]:
    """Content of each allocation, by the number of its entry."""
    contents: dict[int, int] = {}
    open_: dict[int, int] = {}
    for number in memory.tolist():
        address = int(entries["a"][number])
        if entries["kind"][number] == EntryKind.ALLOCATE:
            open_[address] = number
        elif (made := open_.pop(address, None)) is not None:
            contents[made] = _content(int(passes[made]), int(passes[number]))
    for made in open_.values():
        contents[made] = _content(int(passes[made]), -1)
    return contents


def _content(made: int, freed: int) -> int:
    if made == freed:
        return TensorContent.TEMPORARY
    stays = {
        BEFORE: TensorContent.WEIGHTS, FORWARD: TensorContent.ACTIVATIONS, BACKWARD: TensorContent.GRADIENTS,
        UPDATE: TensorContent.OPTIMIZER,
    }  # fmt: skip
    return stays[made]


def _held_by_module(rank: CapturedRank, made: list[int], contents: dict[int, int]) -> tuple[HeldByModule, ...]:
    sizes, counts = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for number in made:
        module = int(rank.entries["module"][number])
        key = rank.texts[module] if module >= 0 else "", PARTS[contents[number]]
        sizes[key] += int(rank.entries["b"][number])
        counts[key] += 1
    return tuple(HeldByModule(*key, size, counts[key]) for key, size in sizes.most_common())


@dataclass(frozen=True)
class GroupCalls:
    """Calls of one kind in one group during the last step: how often, and bytes in all as nccl-tests counts them."""

    op: str
    ranks: tuple[int, ...]
    group: str
    count: int
    bytes: int


@dataclass(frozen=True)
class ReadValue:
    """A value of the device that the script asked for: by which rule it was answered, where, and how often."""

    rule: str
    site: str
    count: int


@dataclass(frozen=True)
class MemoryPeak:
    """Bytes of a rank at its highest point: of its tensors, in blocks of PyTorch's allocator, and what that reserves."""

    rank: int
    tensors: int
    allocated: int
    reserved: int


@dataclass(frozen=True)
class Captured:
    """What the captured ranks did in their last step, replayed on the cluster."""

    folder: Path
    ranks: tuple[CapturedRank, ...]
    world: int
    replayed: ReplayResult
    cluster: Cluster
    launches: tuple[Int64s, ...]
    """Of each rank, by entry of its last step: the task of the replayed graph that the host launched last; -1 none."""

    @property
    def seconds(self) -> float:
        """Of the step, from its first forward to the end of its last kernel."""
        return float(self.replayed.end)

    @cached_property
    def operators(self) -> dict[str, int]:
        """Kernels of the first captured rank's last step, by operator, most frequent first."""
        rank = self.ranks[0]
        entries = rank.entries[steps_of(rank)[-1]]
        names = entries["name"][entries["kind"] == EntryKind.OPERATOR]
        return dict(Counter(rank.texts[name] for name in names.tolist()).most_common())

    @cached_property
    def calls(self) -> tuple[GroupCalls, ...]:
        """Calls of the first captured rank's last step, most bytes first."""
        rank = self.ranks[0]
        entries = rank.entries[steps_of(rank)[-1]]
        counts: dict[tuple[str, int], list[int]] = {}
        for call in entries[entries["kind"] == EntryKind.CALL]:
            of_kind = counts.setdefault((rank.texts[call["name"]], int(call["c"]) >> 32), [0, 0])
            of_kind[0] += 1
            of_kind[1] += int(call["b"])
        groups = rank.about["groups"]
        found = [
            GroupCalls(op, tuple(groups[number]["ranks"]), str(groups[number].get("description", "")), count, size)
            for (op, number), (count, size) in counts.items()
        ]
        return tuple(sorted(found, key=lambda calls: (-calls.bytes, calls.op)))

    @cached_property
    def values(self) -> tuple[ReadValue, ...]:
        """Values that the script read and that would have needed a GPU, most frequent first."""
        rank = self.ranks[0]
        entries = rank.entries[steps_of(rank)[-1]]
        said = Counter(rank.texts[number] for number in entries["signature"][entries["kind"] == EntryKind.READ].tolist())
        parts = [(text.partition("|"), count) for text, count in said.most_common()]
        return tuple(ReadValue(rule, site, count) for (rule, _, site), count in parts if rule != "known")

    @cached_property
    def memory(self) -> tuple[MemoryPeak, ...]:
        """The highest point of each captured rank, by a replay of its allocations."""
        return tuple(peak_of(rank, self.workspace) for rank in self.ranks)

    @property
    def workspace(self) -> float:
        """Bytes of cuBLAS's workspace on the cluster's GPU."""
        return cublas_bytes(self.cluster.gpu.architecture)

    def traces(self, prefix: str = "step") -> Written:
        """The last step as Chakra traces of the captured ranks, with the replay's seconds."""
        from windtunnel.exports.chakra import graph_traces

        times = self.replayed.times
        return graph_traces(self.replayed.graph, times.end - times.start, self.world, prefix)

    @cached_property
    def moments(self) -> tuple[CapturedMoments, ...]:
        """Memory of each captured rank over its last step."""
        found = []
        for rank, launches in zip(self.ranks, self.launches, strict=True):
            ends = np.nan_to_num(self.replayed.times.end)
            seconds = np.where(launches >= 0, ends[launches], 0.0)
            found.append(moments_of(rank, seconds, float(self.cluster.gpu.memory), self.workspace))
        return tuple(found)

    def memory_dict(self) -> dict[str, Any]:
        """What `memory` writes: bytes and seconds."""
        return {
            "world": self.world,
            "memory": [vars(peak) for peak in self.memory],
            "over_time": [
                {"rank": moments.rank} | {key: value for key, value in moments.moments.as_dict().items() if key != "stage"}
                for moments in self.moments
            ],
            "highest": [{"rank": moments.rank, "held": [vars(held) for held in moments.highest]} for moments in self.moments],
        }

    def as_dict(self) -> dict[str, Any]:
        """JSON: stable keys, SI units."""
        return {
            "schema": "windtunnel.capture/1",
            "command": list(self.ranks[0].about["command"]),
            "world": self.world,
            "folder": str(self.folder),
            "step_s": self.seconds,
            "replay": self.replayed.as_dict(),
            "operators": self.operators,
            "calls": [vars(calls) | {"ranks": list(calls.ranks)} for calls in self.calls],
            "values": [vars(value) for value in self.values],
            "memory": [vars(peak) for peak in self.memory],
            "notes": list(dict.fromkeys(note for rank in self.ranks for note in rank.about["notes"])),
        }


def peak_of(rank: CapturedRank, workspace: float = 0.0, alloc_conf: str = "") -> MemoryPeak:
    """Peaks of a rank from its start on, by PyTorch's allocator under `alloc_conf` (PYTORCH_CUDA_ALLOC_CONF; empty: its default
    settings); `workspace`: bytes of cuBLAS's on a stream."""
    pool = CachingAllocator(settings_of(alloc_conf), math.inf)
    live: dict[int, PoolBlock] = {}
    entries = rank.entries[memory_entries(rank)]
    streams = product_streams(rank) if workspace else []
    for stream in streams:
        pool.malloc(workspace, stream)
    tensors = peak = int(workspace) * len(streams)
    for kind, address, size, stream in zip(*(entries[name].tolist() for name in ("kind", "a", "b", "stream")), strict=True):
        if kind == EntryKind.ALLOCATE:
            live[address] = pool.malloc(size, stream)
            tensors += size
            peak = max(peak, tensors)
        elif address in live:
            pool.free(live.pop(address))
            tensors -= size
    return MemoryPeak(int(rank.about["rank"]), peak, int(pool.peak_allocated), int(pool.peak_reserved))


@asks(CaptureOptions)
def capture(asked: CaptureOptions) -> Captured:
    """Runs a training command unedited on this machine's CPU, as ranks of a cluster that isn't there, and predicts its step.

    Only ranks that differ run, one after the other: rank 0, the last one, and those that rank 0 exchanges messages of stages with.
    Needs PyTorch's build for CPUs and a C++ compiler, which builds the device once. SpecError for a command without a script,
    NotInstalled without PyTorch, EngineError for a script that raises.
    """
    from windtunnel.capture.run import capture as run
    from windtunnel.spec.loading.load import load_cluster

    sets = [] if asked.gpus is None else [f"gpus={asked.gpus}"]
    cluster = load_cluster(asked.cluster, sets) if isinstance(asked.cluster, str) else asked.cluster
    done = run(asked.command, cluster, Path(asked.out), steps=asked.steps, ranks=asked.ranks, progress=asked.progress)
    return _replay_ranks(done.folder, done.ranks, cluster, asked.network)


def read_capture(
    files: str | Path | Sequence[str | Path], on: str | Cluster | None = None, sets: Sequence[str] = (), network: str = CLOSED
) -> Captured:
    """A captured job from its folder or its files, on the cluster that it was captured on or another one of as many GPUs.

    SpecError for files of something else. What the job chose by its GPU stays as it was captured.
    """
    from windtunnel.spec.loading.load import load_cluster

    paths = captured_files([files] if isinstance(files, (str, Path)) else files)
    if not paths:
        raise SpecError("CAPTURE", str(files), "a folder that `windtunnel capture` wrote, or its files")
    ranks = tuple(sorted(map(read_captured, paths), key=lambda rank: int(rank.about["rank"])))
    world = int(ranks[0].about["world"])
    if isinstance(on, str) or on is None:
        source = on or ranks[0].about.get("machine") or str(ranks[0].about["cluster"])
        on = load_cluster(source, [f"gpus={world}", *(text.removeprefix("cluster.") for text in sets)])
    return _replay_ranks(paths[0].parent, ranks, on, network)


def on_cluster(captured: Captured, cluster: Cluster) -> Captured:
    """The captured job on another cluster of as many GPUs."""
    return _replay_ranks(captured.folder, captured.ranks, cluster, captured.replayed.network)


def _replay_ranks(folder: Path, ranks: tuple[CapturedRank, ...], cluster: Cluster, network: str) -> Captured:
    from windtunnel.formats.traces.captured import graph_of_captured
    from windtunnel.replay.options import ReplayOptions
    from windtunnel.replay.run import replay

    launches: list[Int64s] = []
    graph = graph_of_captured(ranks, launches)
    replayed = replay(graph, cluster, ReplayOptions(network=network, compute="kernels"))
    return Captured(folder, ranks, int(ranks[0].about["world"]), replayed, cluster, tuple(launches))
