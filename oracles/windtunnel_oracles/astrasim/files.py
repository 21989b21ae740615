"""The files of an ASTRA-sim run, and the run.

A collective that a Chakra trace describes: sends, receives and reductions of each rank (CustomAlgorithm.cc).

A Chakra trace as ASTRA-sim runs it: one operation in flight of each kind on a rank, the free node with the least id first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.errors import FileError, SpecError
from windtunnel.engine.dag import ChannelKind, ChannelTable, LaneTable, TaskTable, TaskTimes, run
from windtunnel.formats.door import list_files
from windtunnel.formats.simulators.astrasim.configuration import (
    MEMORIES,
    AnalyticalNetwork,
    RemoteMemory,
    System,
    read_memory,
    read_network,
    read_system,
)
from windtunnel.formats.traces.chakra.framing import sources
from windtunnel.formats.traces.chakra.groups import read_groups
from windtunnel.formats.traces.chakra.node import COLLECTIVES
from windtunnel.formats.traces.chakra.trace import ChakraTrace, read_trace
from windtunnel.records.trace_graph import TaskKind
from windtunnel_oracles.astrasim.blocks import Blocks
from windtunnel_oracles.astrasim.collective import Collectives
from windtunnel_oracles.astrasim.members import Members
from windtunnel_oracles.astrasim.unfolded import send
from windtunnel_oracles.astrasim.wires import Wires

MODELLED = ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL")
_COMPUTE, _COMMUNICATE, _HOST = range(3)


@dataclass(frozen=True)
class Finish:
    """Of each rank [R] in ns: its end, and its exposed communication as ASTRA-sim counts it (the end less the device's computing).

    `stuck` says what never ran, `notes` what ASTRA-sim does that a reader may not expect.
    """

    end: Floats
    exposed: Floats
    times: TaskTimes
    stuck: tuple[str, ...]
    notes: tuple[str, ...]


def simulate(trace: ChakraTrace, system: System, wires: Wires, memory: RemoteMemory, collectives: Collectives) -> Finish:
    """Runs the trace. SpecError for what ASTRA-sim refuses: memory nodes without a memory, collectives that it does not know."""
    graph = trace.graph
    if graph.ranks > wires.network.npus:
        raise SpecError("network: npus_count", wires.network.npus, f"{graph.ranks} NPUs or more, one for each rank of the trace")
    if not system.local_mem_bw and not system.replay_only:
        raise SpecError("system: local-mem-bw", system.local_mem_bw, "a bandwidth above 0", "Without one ASTRA-sim waits for ever.")
    seconds, notes = _durations(trace, system, wires, memory)
    channels = _Channels(trace, system, wires, memory)
    rank = graph.rank_of().astype(np.int64)
    device = np.where(graph.kind == TaskKind.COMPUTE, _COMPUTE, _COMMUNICATE)
    lane = rank * 3 + np.where(graph.on_host, _HOST, device)
    lane = np.where((graph.kind == TaskKind.RECEIVE) & ~graph.on_host | (graph.kind == TaskKind.MARK), -1, lane)
    tasks = TaskTable(
        seconds.astype(np.float64), lane.astype(np.int32), graph.dep_start, graph.deps, priority=graph.ids,
        channel=channels.channel.astype(np.int32), slot=channels.slot.astype(np.int32),
    )  # fmt: skip

    def leave(channel: int, _: int, entered: Floats) -> Floats:
        call, size, involved, ranks = channels.calls[channel]
        return collectives.leave(call, size, ranks, involved, entered)

    table = ChannelTable(np.array(channels.kinds, np.uint8), np.array(channels.slots, np.int32))
    times = run(tasks, LaneTable.of(3 * graph.ranks, ordered=False), table, leave)
    ends = np.zeros(graph.ranks)
    np.maximum.at(ends, rank, np.nan_to_num(times.end))
    computes = (graph.kind == TaskKind.COMPUTE) & ~graph.on_host
    if system.replay_only:
        computes = ~graph.on_host
    busy = np.bincount(rank[computes], seconds[computes], minlength=graph.ranks)
    return Finish(ends, ends - busy, times, _stuck_notes(trace, times), tuple(notes))


def _durations(trace: ChakraTrace, system: System, wires: Wires, memory: RemoteMemory) -> tuple[Int64s, list[str]]:
    """ns of each node alone: replayed, by the roofline, of a message, or of the memory."""
    graph = trace.graph
    notes: list[str] = []
    ns = np.where(trace.micros > 0, trace.micros * 1000, 1)
    ns[graph.kind == TaskKind.MARK] = 0
    if system.replay_only:
        return ns, notes
    if system.roofline:
        if not system.peak_perf:
            raise SpecError("system: peak-perf", 0, "TFLOP/s above 0 where the roofline is on")
        at = np.nonzero((graph.kind == TaskKind.COMPUTE) & ~graph.on_host)[0]
        flops, size = np.nan_to_num(graph.flops[at]), np.maximum(trace.size[at], 0).astype(np.float64)
        sized = size > 0
        intensity = flops / np.where(sized, size, 1)
        rate = np.minimum(system.local_mem_bw * intensity, system.peak_perf)
        ns[at] = np.where(sized & (flops > 0), flops / np.where(rate > 0, rate, 1) * 1e9, 0).astype(np.int64)
        if (lost := int((~sized).sum())) > 0:
            notes.append(
                f"{lost} computations have no tensor_size: with the roofline on ASTRA-sim skips them, and starts what waits for "
                "them only with the rank's next event, or never; here they take no time"
            )
    sends = np.nonzero(graph.kind == TaskKind.SEND)[0]
    if len(sends):
        src, dst = graph.numbers[graph.rank_of()[sends]], graph.peer[sends].astype(np.int64)
        wrong = (dst < 0) | (dst >= wires.network.npus) | (dst == src)
        if wrong.any():
            raise SpecError("comm_dst", int(dst[wrong][0]), f"another of the {wires.network.npus} NPUs")
        for size in np.unique(trace.size[sends]).tolist():
            of = trace.size[sends] == size
            ns[sends[of]] = wires.delay(src[of], dst[of], max(1, size))
    memories = np.nonzero((graph.kind == TaskKind.LOAD) | (graph.kind == TaskKind.STORE))[0]
    if len(memories):
        if memory.kind == MEMORIES[0]:
            raise SpecError(
                "remote memory: memory-type",
                memory.kind,
                ", ".join(MEMORIES[1:]),
                f"The trace has {len(memories)} memory nodes; ASTRA-sim exits.",
            )
        ns[memories] = int(memory.latency) + (np.maximum(trace.size[memories], 0) / memory.bandwidth).astype(np.int64)
    return ns, notes


class _Channels:
    """Where nodes meet: collectives by group, call and size; messages by sender, receiver and tag; ports of shared memories."""

    def __init__(self, trace: ChakraTrace, system: System, wires: Wires, memory: RemoteMemory) -> None:
        self.trace, self.memory = trace, memory
        graph = trace.graph
        self.channel, self.slot = np.full(len(graph), -1, np.int64), np.zeros(len(graph), np.int64)
        self.kinds: list[int] = []
        self.slots: list[int] = []
        self.calls: dict[int, tuple[str, int, int, tuple[int, ...]]] = {}
        self._index: dict[tuple[object, ...], int] = {}
        if system.replay_only:
            return
        self.numbers = {int(number): at for at, number in enumerate(graph.numbers)}
        world = tuple(range(wires.network.npus))
        members = [world if name == "0" else group for name, group in zip(trace.group_names, graph.groups, strict=True)]
        ranks = graph.rank_of().tolist()
        for at in np.nonzero(graph.kind == TaskKind.COLLECTIVE)[0].tolist():
            self._collective(at, ranks[at], members[int(graph.group[at])])
        for at in np.nonzero((graph.kind == TaskKind.SEND) | (graph.kind == TaskKind.RECEIVE))[0].tolist():
            self._message(at, int(graph.numbers[ranks[at]]))
        if memory.kind in (MEMORIES[1], MEMORIES[3]):
            for at in np.nonzero((graph.kind == TaskKind.LOAD) | (graph.kind == TaskKind.STORE))[0].tolist():
                node = int(graph.numbers[ranks[at]]) // memory.npus_per_node if memory.npus_per_node else 0
                self.channel[at] = self._open(("memory", node), ChannelKind.PORT, 1)

    def _open(self, key: tuple[object, ...], kind: ChannelKind, slots: int) -> int:
        if key not in self._index:
            self._index[key] = len(self.kinds)
            self.kinds.append(kind)
            self.slots.append(slots)
        return self._index[key]

    def _collective(self, at: int, rank: int, group: tuple[int, ...]) -> None:
        trace = self.trace
        call = COLLECTIVES[int(trace.call[at])]
        if call == "BROADCAST":
            return  # replayed with its duration, meeting nobody
        if call not in MODELLED:
            raise SpecError("comm_type", call, ", ".join((*MODELLED, "BROADCAST")), "ASTRA-sim has no other collectives.")
        if trace.size[at] < 0:
            raise SpecError("comm_size", "nothing", "bytes of each collective", "ASTRA-sim does not end without.")
        number = int(trace.graph.numbers[rank])
        if number not in group:
            raise SpecError(
                f"comm group {trace.group_names[int(trace.graph.group[at])]}", group[:8], f"ranks with {number}, which calls it"
            )
        size, involved = int(trace.size[at]), int(trace.involved[at])
        channel = self._open(("call", group, call, size, involved), ChannelKind.MODEL, len(group))
        self.calls[channel] = (call, size, involved, group)
        self.channel[at], self.slot[at] = channel, group.index(number)

    def _message(self, at: int, number: int) -> None:
        graph = self.trace.graph
        sends = graph.kind[at] == TaskKind.SEND
        peer = int(graph.peer[at])
        src, dst = (number, peer) if sends else (peer, number)
        self.channel[at] = self._open(("message", src, dst, int(graph.tag[at])), ChannelKind.EAGER, 2)
        self.slot[at] = 0 if sends else 1


def _stuck_notes(trace: ChakraTrace, times: TaskTimes) -> tuple[str, ...]:
    """What never ended, by what it is."""
    lost = np.nonzero(np.isnan(times.end))[0]
    if not len(lost):
        return ()
    waits: Mapping[str, int] = Counter(
        TaskKind(int(trace.graph.kind[at])).name.lower() for at in lost.tolist() if not np.isnan(times.start[at])
    )
    posted = ", ".join(f"{count} {kind}s" for kind, count in sorted(waits.items())) or "none of them begun"
    return (f"{len(lost)} of {len(times.end)} nodes never end; waiting for others: {posted}",)


@dataclass(frozen=True)
class AstraSetting:
    """What ASTRA-sim is told beside the workload; `aware`: its congestion-aware backend."""

    system: System
    network: AnalyticalNetwork
    memory: RemoteMemory = RemoteMemory()
    aware: bool = False


@dataclass(frozen=True)
class AstraRun:
    """A trace as ASTRA-sim runs it: cycles of each rank, and keys of its files that it does not know."""

    ranks: tuple[int, ...]
    finish: Finish
    unknown: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; cycles."""
        return {
            "schema": "windtunnel.astrasim/1",
            "rank": list(self.ranks),
            "cycles": [int(end) for end in self.finish.end],
            "exposed": [int(seconds) for seconds in self.finish.exposed],
            "ignored_keys": list(self.unknown),
            "notes": list(self.finish.notes),
            "stuck": list(self.finish.stuck),
        }


def replay_astra_sim(
    files: Sequence[str | Path],
    system: str | Path,
    network: str | Path,
    memory: str | Path | None = None,
    groups: str | Path | None = None,
    congestion_aware: bool = False,
) -> AstraRun:
    """Chakra traces of one source, run as ASTRA-sim would with the files of its system, network and remote memory.

    `groups`: its file of communicator groups; `congestion_aware`: its backend of that name. FileError and SpecError for files that
    are none of these.
    """
    paths = [path for name in files for path in list_files(Path(name)) if path.suffix != ".json"]
    if not paths:
        raise FileError("TRACE", "no file", "Chakra traces")
    remote = RemoteMemory() if memory is None else read_memory(Path(memory))
    setting = AstraSetting(read_system(Path(system)), read_network(Path(network)), remote, congestion_aware)
    trace = read_trace(sources(paths)[0], None if groups is None else read_groups(Path(groups)))
    unknown = (*setting.system.unknown, *setting.network.unknown, *setting.memory.unknown)
    return AstraRun(tuple(trace.graph.numbers.tolist()), run_setting(trace, setting), unknown)


def run_setting(trace: ChakraTrace, setting: AstraSetting) -> Finish:
    """Runs a trace under a setting."""
    wires = Wires(setting.network, setting.aware)
    described: dict[str, ChakraTrace] = {}

    def custom(call: str, members: Members, entered: np.ndarray) -> np.ndarray:
        prefix = setting.system.custom[call]
        if prefix not in described:
            described[prefix] = _read_custom_trace(prefix, setting.system.folder)
        return run_custom(described[prefix], members, entered)

    collectives = Collectives(setting.system, wires, custom if setting.system.custom else None)
    return simulate(trace, setting.system, wires, setting.memory, collectives)


def read_workload(prefix: str, groups: Mapping[str, tuple[int, ...]] | None = None) -> ChakraTrace:
    """The trace `PREFIX.<rank>.et`, as ASTRA-sim names its workload. FileError where there is none."""
    path = Path(prefix)
    files = sorted(path.parent.glob(f"{path.name}.*.et")) if path.parent.is_dir() else []
    if not files:
        raise FileError(prefix, "no file PREFIX.<rank>.et", "the prefix of a Chakra trace")
    return read_trace(sources(files)[0], groups)


def _read_custom_trace(prefix: str, folder: str) -> ChakraTrace:
    """The trace of a custom collective: its path counts from where ASTRA-sim is started, or else it lies beside the system file."""
    given, beside = Path(prefix), Path(folder).resolve()
    for path in (given, *(base / given for base in (beside, *beside.parents)), beside / given.parent.name / given.name):
        if list(path.parent.glob(f"{path.name}.0.et")):
            return read_workload(str(path))
    return read_workload(prefix)


def run_custom(trace: ChakraTrace, members: Members, entered: np.ndarray) -> np.ndarray:
    """Exits of the ranks. Sizes are the trace's; a node starts when its dependencies have ended, however many are in flight; a send
    ends when its message arrives, a reduction takes its duration or 1 ns."""
    graph = trace.graph
    if graph.ranks != len(members.ranks):
        raise SpecError("custom collective", f"{graph.ranks} ranks", f"{len(members.ranks)} ranks, as the group has")
    blocks = Blocks()
    start = blocks.start(entered)
    rank = graph.rank_of()
    receives = _match_sends(trace)
    end = np.full(len(graph), -1, np.int64)
    open_ = np.diff(graph.dep_start).astype(np.int64)
    for receive in receives:
        open_[receive] += 1
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.dep_start))
    order = np.argsort(graph.deps, kind="stable")
    after = np.searchsorted(graph.deps[order], np.arange(len(graph) + 1))
    heard = {sender: receive for receive, sender in receives.items()}
    ready = np.nonzero(open_ == 0)[0].tolist()
    for at in ready:  # grows while it runs: an order in which every node comes after what it waits for
        waits = [end[[dep]] for dep in graph.deps[graph.dep_start[at] : graph.dep_start[at + 1]].tolist()] or [start[[rank[at]]]]
        if graph.kind[at] == TaskKind.SEND:
            ready_at = blocks.add(0, waits)
            src, dst = members.ranks[[rank[at]]], members.ranks[[int(graph.peer[at])]]
            end[at] = send(blocks, members.wires, ready_at, src, dst, int(trace.size[at]))[0]
        elif graph.kind[at] == TaskKind.RECEIVE:
            end[at] = blocks.add(0, [*waits, end[[receives[at]]]])[0]
        else:
            end[at] = blocks.add(max(1, int(trace.micros[at]) * 1000), waits)[0]
        following = owner[order[after[at] : after[at + 1]]].tolist() + ([heard[at]] if at in heard else [])
        for one in following:
            open_[one] -= 1
            if open_[one] == 0:
                ready.append(one)
    if (end < 0).any():
        raise SpecError("custom collective", f"{int((end < 0).sum())} nodes that wait for each other", "a trace that can end")
    leaves = [blocks.add(0, [end[[at]] for at in np.nonzero(rank == r)[0].tolist()] or [start[[r]]]) for r in range(graph.ranks)]
    links = members.wires.links if members.wires.aware else 0
    return blocks.run(links, np.ones(links)).end[np.concatenate(leaves)]


def _match_sends(trace: ChakraTrace) -> dict[int, int]:
    """The send that each receive waits for: the n-th of a sender, receiver and tag. SpecError where the numbers differ."""
    graph, rank = trace.graph, trace.graph.rank_of().tolist()
    sides: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for at in np.nonzero((graph.kind == TaskKind.SEND) | (graph.kind == TaskKind.RECEIVE))[0].tolist():
        sends, peer = graph.kind[at] == TaskKind.SEND, int(graph.peer[at])
        key = (rank[at], peer, int(graph.tag[at])) if sends else (peer, rank[at], int(graph.tag[at]))
        sides.setdefault(key, ([], []))[0 if sends else 1].append(at)
    out: dict[int, int] = {}
    for (src, dst, tag), (sent, received) in sides.items():
        if len(sent) != len(received) or not 0 <= dst < graph.ranks:
            raise SpecError(
                "custom collective",
                f"{len(sent)} sends and {len(received)} receives from {src} to {dst} with tag {tag}",
                "as many of both",
            )
        out |= dict(zip(received, sent, strict=True))
    return out
