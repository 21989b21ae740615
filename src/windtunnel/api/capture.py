"""An unedited training script on a cluster that isn't there: what it does, how long that takes, and what memory it holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.api.captured_memory import CapturedMoments, memory_entries, moments_of, product_streams
from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED
from windtunnel.base.options import asks
from windtunnel.capture.options import CaptureOptions
from windtunnel.memory.allocator import CachingAllocator, PoolBlock, settings_of
from windtunnel.memory.habits import cublas_bytes
from windtunnel.records.capture_file import CapturedRank, EntryKind, captured_files, read_captured, steps_of

if TYPE_CHECKING:
    from windtunnel.exports.exporters import Written
    from windtunnel.replay.result import ReplayResult
    from windtunnel.spec.machine import Cluster


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
