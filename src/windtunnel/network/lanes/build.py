"""Builds the lanes of a collective: an algorithm's pattern, with the rate and the delays that the library reaches.

The parts of a call (`closed/cost.py`) give the rate of its bytes inside a node and between nodes, from channels, buffers, NVLink,
PCIe and NICs. That rate is divided over the lanes. The latency, and the fill that the lanes do not have by themselves, become a
delay before each slice, in proportion to the hops of the algorithm and protocol. So a call without other traffic takes the closed
form's time in every engine; this does not validate the closed form.

Messages between nodes over several channels: NCCL cuts a message into a part for each, and each has its own connection.

(`addP2pToPlan` in `enqueue.cc` of NCCL 2.30.7: `ncclP2pPartBounds`.) More connections take more of the equal paths of a fabric that
hashes them.

Joins sends of a file into lanes: sends of one source, destination and channel that wait slice by slice become one lane.

Sends of a connection are one lane if they have equal sizes (the last may be shorter) and each waits for the next slice of another
lane, or for a complete other lane. Otherwise each send is a separate lane, ordered only by `after`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.engine.lanes import ALL, Lanes
from windtunnel.network.algorithm import ALGORITHMS, CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import COPY, Cargo, CollectiveCall, Pattern, deps
from windtunnel.network.closed.collective import Setup, prepare
from windtunnel.network.closed.cost import MADE_OF_SENDS
from windtunnel.network.groups.shape import Group
from windtunnel.network.lanes.send_files import Send, Sends
from windtunnel.network.lanes.timing import index_within, seconds
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import BATCH
from windtunnel.network.nccl.settings import DEFAULT, Settings
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

_WIRE = {protocol: 1.0 / data for protocol, data in zip(c.PROTOCOLS, c.DATA_ON_WIRE, strict=True)}
"""Bytes sent per byte of data."""
_MOST_SLICES = 300_000  # slices that are timed one by one if no formula is exact


@dataclass(frozen=True)
class Speed:
    """Speed of the library in seconds: `launch` before the first slice, `local` and `net` for all of the call's bytes inside
    nodes and between them, hops per slice of each kind; `total`: the closed form's seconds, None if it has none for the
    algorithm."""

    launch: float
    local: float
    net: float
    local_hop: float
    net_hop: float
    total: float | None


@dataclass(frozen=True)
class CallLanes:
    """Lanes of one call, with the `call` and `pattern` that they were built from."""

    lanes: Lanes
    pattern: Pattern
    call: CollectiveCall
    algorithm: str
    protocol: str
    seconds: float
    """Seconds of the call without other traffic."""
    latency: float
    """The part of `seconds` that does not move bytes."""
    ends: Int32s
    """[ranks] endpoint of each rank, switches included."""


def lanes_of(
    cluster: Cluster,
    comm: Comm,
    size: float,
    ranks: Int32s,
    group: Group,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    settings: Settings = DEFAULT,
    switches: Int32s | None = None,
    dims: Sequence[int] = (),
    speeds: Sequence[float] = (),
    chunks: int = 8,
    leaves: Sequence[int] = (),
    rings: tuple[tuple[int, ...], ...] = (),
) -> CallLanes:
    """Lanes of `comm` with `size` bytes in total (as nccl-tests counts them) over endpoints `ranks`, ordered by node.

    `group` is their shape; what NCCL selects follows from it, unless `algorithm` (a name of `ALGORITHMS`) and `protocol` say
    otherwise. Rates exclude contention: sharing of NICs, oversubscription and collisions are left to the engine. `switches`:
    endpoints of the nodes' NVSwitches, then of the fabric's (collnet.py), for algorithms that add there. Raises SpecError for a
    call that the algorithm does not support and for missing switches, UnknownName for an unknown name.
    """
    if not math.isfinite(size) or size < 0:
        raise SpecError("bytes", size, "a finite number of bytes, not negative")
    if len(ranks) != group.ranks or len(ranks) < 2:
        raise SpecError("ranks", len(ranks), f"{group.ranks} endpoints, at least 2")
    setup = prepare(cluster, comm, group, settings)
    chosen = setup.choose(size)
    name = algorithm or chosen[0]
    rule = ALGORITHMS.find(name)
    wire_protocol = protocol or (chosen[1] if name == chosen[0] else c.SIMPLE)
    if wire_protocol not in c.PROTOCOLS:
        raise UnknownName("protocol", wire_protocol, c.PROTOCOLS)
    call = call_of(
        setup, comm, size, rule, wire_protocol, dims=tuple(dims), speeds=tuple(speeds), chunks=chunks, leaves=tuple(leaves)
    )
    if group.nodes > 1 and group.sharing > 1:  # NICs beside the group's GPUs, including those that other groups share
        call = replace(call, nics=max(1, round(prepare(cluster, comm, replace(group, sharing=1), settings).links.nics)))
    if setup.graph.file is not None and not rings:
        call = replace(call, stated=setup.graph.file.of(rule.walks_trees).orders)
    if rings:
        # Rings of a mesh share its links evenly if each has as many channels.
        even = len(rings) * max(1, call.channels // len(rings)) if rule.walks_rings and group.nodes == 1 else call.channels
        call = replace(call, rings=rings, channels=even)
    pattern: Pattern = rule.lower(call)
    if rule.messages and comm == Comm.ALL_TO_ALL:
        pattern = split_channels(pattern, call, int(setup.graph.sends.of(size / group.ranks)))
    speed = speed_of(cluster, setup, call, rule, name)
    ends = np.concatenate([ranks, switches if switches is not None else np.zeros(0)]).astype(np.int32)
    if int(max(pattern.src.max(), pattern.dst.max())) >= len(ends):
        raise SpecError("algorithm", name, "an algorithm without switches that add", "The graph offers no switch as an endpoint.")
    lanes, seconds, latency = put_speed(pattern, call, speed, ends)
    return CallLanes(lanes, pattern, call, name, wire_protocol, seconds, latency, ends)


def call_of(
    setup: Setup,
    comm: Comm,
    size: float,
    algorithm: CollectiveAlgorithm,
    protocol: str,
    *,
    dims: tuple[int, ...] = (),
    speeds: tuple[float, ...] = (),
    chunks: int = 8,
    leaves: tuple[int, ...] = (),
) -> CollectiveCall:
    """The input of an algorithm: channels, buffer steps and NICs that NCCL would use for the call."""
    group, settings = setup.group, setup.settings
    nics = max(1, round(setup.links.nics)) if group.nodes > 1 else group.per_node
    at_once = BATCH
    if comm in MADE_OF_SENDS:
        at_once = setup.graph.sends.at_once(size / group.ranks)
    return CollectiveCall(
        comm,
        group.ranks,
        group.per_node,
        size,
        protocol,
        channels_of(setup, size, algorithm, protocol),
        nics,
        step_of(settings, protocol),
        0,
        dims,
        speeds,
        chunks,
        leaves,
        at_once=at_once,
    )


def channels_of(setup: Setup, size: float, algorithm: CollectiveAlgorithm, protocol: str) -> int:
    """Channels of the kernel: fewer if a thread would have too few bytes (`scheduleCollTasksToPlan` and its predecessors), but one
    for each NIC: the closed form, on which hops were fitted, has a small message on all of them too."""
    if (stated := algorithm.channels(setup.graph)) is not None:
        return stated
    least = c.THREAD_BYTES[protocol] * (setup.group.ranks if protocol == c.LL and algorithm.walks_rings else 1)
    threads = setup.settings.threads or c.THREADS[protocol]
    nics = max(1, round(setup.links.nics)) if setup.group.nodes > 1 else 1
    if setup.graph.file is not None:
        nics = len(setup.graph.file.of(algorithm.walks_trees).orders)
    most = min(setup.graph.running, max(nics, int(size // (threads * least))))
    # As many on each NIC, and of each of two trees: the rate is that of NICs which share a call evenly.
    even = 2 * nics if algorithm.walks_trees and most >= 2 * nics else nics
    return most - most % even if most > even else max(1, most)


def step_of(settings: Settings, protocol: str) -> float:
    """Data bytes in one of the eight steps of a connection's buffer."""
    buffer = settings.buffers.get(protocol)
    return buffer / 8 / _WIRE[protocol] if buffer else c.STEP_BYTES[protocol]


def speed_of(cluster: Cluster, setup: Setup, call: CollectiveCall, rule: CollectiveAlgorithm, name: str) -> Speed:
    """Speed of the algorithm `rule`, called `name`, on links without other traffic."""
    group = setup.group
    alone = replace(group, sharing=1, span="leaf") if group.nodes > 1 else group
    ready = prepare(cluster, call.comm, alone, replace(setup.settings, cross_nic=0))  # what crosses rails meets on the links
    p = c.PROTOCOLS.index(call.protocol)
    hops = rule.hops(p, ready.node, ready.net)
    if not rule.closed_form:
        # Each rank uses its links like a ring; a ring moves (n - 1)/n of the buffer twice for an all-reduce.
        moved = call.size * (group.ranks - 1) / group.ranks
        parts = ready.parts(call.size, ALGORITHMS.default, call.protocol, Comm.ALL_GATHER)
        launch = rule.launch(call.comm, group, ready.node, ready.net, parts)
        scale = call.size / moved if moved else 0.0
        return Speed(launch, parts.inside * scale, parts.outside * scale * group.per_node, *hops, None)
    parts = ready.parts(call.size, name, call.protocol)
    launch = rule.launch(call.comm, group, ready.node, ready.net, parts)
    chosen = ready.choose(call.size) == (name, call.protocol)
    cost = ready.seconds(call.size)[0] if chosen else ready.cost(call.size, name, call.protocol)
    return Speed(launch, parts.inside, parts.outside, *hops, cost.seconds)


def put_speed(pattern: Pattern, call: CollectiveCall, speed: Speed, ends: Int32s) -> tuple[Lanes, float, float]:
    """(lanes, seconds without other traffic, the part of them that does not move bytes)."""
    local, net = speed.local, speed.net
    if pattern.one_speed:
        local = net = max(local, net)
    busy = pattern.alone(local, net)
    hops = pattern.local_steps * (speed.local_hop + 1e-9) + pattern.net_steps * (speed.net_hop + 1e-9)
    total = speed.launch + busy + hops if speed.total is None else speed.total
    # Where the lanes' fill alone is more than the closed form has, they are faster by that share.
    hurried = total / busy if busy > total > 0.0 else 1.0
    local, net, busy = local * hurried, net * hurried, busy * hurried
    remaining = total - speed.launch - busy
    part = max(0.0, remaining) / hops if hops > 0 else 0.0
    between = call.node_of(pattern.src) != call.node_of(pattern.dst)
    seconds_of_kind = np.where(between, net, local)
    rate = np.divide(pattern.pace, seconds_of_kind, out=np.full(len(pattern), np.inf), where=seconds_of_kind > 0)
    wire = _WIRE[call.protocol]
    slice_, bytes_ = on_wire(pattern, wire)
    delay = np.where(between, speed.net_hop + 1e-9, speed.local_hop + 1e-9) * part
    # A slice keeps its credit during the delay; the library's buffer does not require that.
    waiting = np.ceil(np.where(np.isinf(rate), 0.0, delay * np.minimum(rate, 1e15) * wire / slice_)).astype(np.int64)
    window = np.where(pattern.window > 0, np.minimum(pattern.window + waiting, 2**30), 0).astype(np.int32)
    lanes = Lanes(
        ends[pattern.src],
        ends[pattern.dst],
        bytes_,
        slice_,
        window,
        delay,
        rate * wire,
        np.full(len(pattern), speed.launch + min(0.0, remaining)).clip(min=0.0),
        pattern.group,
        pattern.dep_start,
        pattern.dep_lane,
        pattern.dep_lead,
    )
    if speed.total is None and len(pattern) and int(pattern.slices.sum()) <= _MOST_SLICES:
        total = seconds(lanes)
    bound = float((bytes_ / lanes.rate).max())
    return lanes, total, max(0.0, total - bound / hurried)


def on_wire(pattern: Pattern, wire: float) -> tuple[Int64s, Int64s]:
    """(slice, bytes) with a protocol's flags; the number of slices does not change."""
    if wire == 1.0:
        return pattern.slice, pattern.bytes
    slices = pattern.slices
    last = pattern.bytes - (slices - 1) * pattern.slice
    slice_ = np.ceil(pattern.slice * wire).astype(np.int64)
    return slice_, (slices - 1) * slice_ + np.ceil(last * wire).astype(np.int64)


FILE = "file"
"""The name of an algorithm that a file has."""


class _FromFile(CollectiveAlgorithm):
    """Lanes that a file states."""

    def lower(self, call: CollectiveCall) -> Pattern:
        raise SpecError("algorithm", FILE, "a file of sends")


_FROM_FILE = _FromFile()


def lanes_of_sends(
    cluster: Cluster,
    comm: Comm,
    size: float,
    sends: Sends,
    ranks: Int32s,
    group: Group,
    settings: Settings = DEFAULT,
    switches: Int32s | None = None,
) -> CallLanes:
    """Lanes of an algorithm from a file, scaled to `size` if the file states its own size.

    Fields that a send omits default to a library's step of Simple: its hop, and all of the rank's links of that kind.
    SpecError if it has more ranks than `ranks`.
    """
    if sends.ranks > len(ranks):
        raise SpecError("algorithm", sends.ranks, f"at most {len(ranks)} ranks", "The file names more ranks than the call has.")
    scaled = sends.scale(size)
    setup = prepare(cluster, comm, group, settings)
    call = call_of(setup, comm, size, _FROM_FILE, c.SIMPLE)
    speed = speed_of(cluster, setup, replace(call, size=max(call.size, 1.0)), _FROM_FILE, FILE)
    lines = join(scaled)
    firsts = [scaled.sends[at] for at in lines.first]
    src = np.array([s.src if s.src >= 0 else len(ranks) - 1 - s.src for s in firsts], dtype=np.int32)
    dst = np.array([s.dst if s.dst >= 0 else len(ranks) - 1 - s.dst for s in firsts], dtype=np.int32)
    ends = np.concatenate([ranks, switches if switches is not None else np.zeros(0)]).astype(np.int32)
    if (last := int(max(src.max(), dst.max()))) >= len(ends):
        raise SpecError("algorithm", f"s{last - len(ranks)}", f"{len(ends) - len(ranks)} switches that add")
    count = len(firsts)
    pattern = Pattern(
        src,
        dst,
        lines.bytes,
        lines.slice,
        np.zeros(count, dtype=np.int32),
        lines.group,
        np.array([s.channel for s in firsts], dtype=np.int32),
        np.full(count, max(call.size, 1.0)),
        lines.dep_start,
        lines.dep_lane,
        lines.dep_lead,
        0,
        0,
        lambda local, net: 0.0,
        0,
        lambda lane, slice: ((), 0),
        lambda piece: 0,
    )
    plain, _, _ = put_speed(pattern, call, replace(speed, total=None), ends)
    between = call.node_of(src) != call.node_of(dst)
    hop = np.where(between, speed.net_hop, speed.local_hop)
    lanes = replace(
        plain,
        delay=np.array([h if s.delay_s is None else s.delay_s for h, s in zip(hop, firsts, strict=True)]),
        rate=np.array([r if s.rate is None else s.rate for r, s in zip(plain.rate, firsts, strict=True)]),
        begin=np.array([speed.launch if s.begin_s is None else s.begin_s for s in firsts]),
    )
    total = seconds(lanes)
    bound = float((lanes.bytes / lanes.rate).max())
    return CallLanes(lanes, pattern, call, FILE, c.SIMPLE, total, max(0.0, total - bound), ends)


def split_channels(pattern: Pattern, call: CollectiveCall, channels: int) -> Pattern:
    """The pattern of messages with every lane between nodes as one lane for each of `channels`.

    A lane that waited for one waits for all of its parts. The last slice of each part carries the message.
    """
    far = call.node_of(pattern.src) != call.node_of(pattern.dst)
    parts = np.where(far & (pattern.bytes >= channels), channels, 1)
    if channels == 1 or not far.any():
        return pattern
    first = np.concatenate([[0], np.cumsum(parts)])
    old = np.repeat(np.arange(len(pattern)), parts)
    bytes_ = -(-pattern.bytes // parts)[old]
    waits = np.diff(pattern.dep_start)[old]
    each = np.repeat(pattern.dep_start[:-1][old], waits) + index_within(waits)
    on = pattern.dep_lane[each]
    number = parts[on]
    slices, before = -(-bytes_ // np.minimum(pattern.slice[old], bytes_)), pattern.slices

    def carries(lane: int, slice: int) -> Cargo:
        last = slice == slices[lane] - 1
        return pattern.carries(int(old[lane]), int(before[old[lane]]) - 1) if last else ((), COPY)

    total = np.bincount(np.repeat(np.arange(len(old)), waits), weights=number, minlength=len(old)).astype(np.int64)
    return replace(
        pattern,
        src=pattern.src[old],
        dst=pattern.dst[old],
        bytes=bytes_,
        slice=np.minimum(pattern.slice[old], bytes_),
        window=pattern.window[old],
        group=np.arange(len(old), dtype=np.int32),
        channel=np.arange(len(old), dtype=np.int32),
        pace=pattern.pace[old] / parts[old],
        dep_start=np.concatenate([[0], np.cumsum(total)]).astype(np.int64),
        dep_lane=(np.repeat(first[on], number) + index_within(number)).astype(np.int32),
        dep_lead=np.repeat(pattern.dep_lead[each], number),
        carries=carries,
    )


Key = tuple[int, int, int]


@dataclass(frozen=True)
class Joined:
    """K lanes: `first` send of each, `bytes`, `slice`, dependencies, and the lane's group."""

    first: Int32s
    bytes: Int64s
    slice: Int64s
    group: Int32s
    dep_start: Int64s
    dep_lane: Int32s
    dep_lead: Int64s


def join(sends: Sends) -> Joined:
    """Lanes of the sends, in the order of their first sends."""
    lines: dict[Key, list[int]] = {}
    for at, send in enumerate(sends.sends):
        lines.setdefault((send.src, send.dst, send.channel), []).append(at)
    members = list(lines.values())
    while True:
        place = {at: (lane, j) for lane, group in enumerate(members) for j, at in enumerate(group)}
        waits = [_waits(group, sends.sends, place, members) for group in members]
        split = [len(group) > 1 and (waits[lane] is None or not _even(group, sends.sends)) for lane, group in enumerate(members)]
        if not any(split):
            break
        members = [part for group, cut in zip(members, split, strict=True) for part in ([[at] for at in group] if cut else [group])]
    members_at = np.array([group[0] for group in members], dtype=np.int32)
    pairs = [(lane, on, lead) for lane, leads_of_lane in enumerate(waits) for on, lead in (leads_of_lane or {}).items()]
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    start, dep_lane, lead = deps(len(members), columns[:, 0], columns[:, 1], columns[:, 2])
    total = np.array([sum(sends.sends[at].bytes for at in group) for group in members], dtype=np.int64)
    slices = np.array([max(sends.sends[at].bytes for at in group) for group in members], dtype=np.int64)
    return Joined(members_at, total, slices, _groups(len(members), columns), start, dep_lane, lead)


def _even(group: list[int], sends: tuple[Send, ...]) -> bool:
    sizes = [sends[at].bytes for at in group]
    first = sends[group[0]]
    same = all((sends[at].delay_s, sends[at].rate, sends[at].begin_s) == (first.delay_s, first.rate, first.begin_s) for at in group)
    return same and all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]


def _waits(
    group: list[int], sends: tuple[Send, ...], place: dict[int, tuple[int, int]], members: list[list[int]]
) -> dict[int, int] | None:
    """Lane -> lead, or None if the sends' waits do not advance slice by slice."""
    sends_per_lane: dict[int, list[int]] = {}
    for j, at in enumerate(group):
        for other in sends[at].after:
            lane, index = place[other]
            counts = sends_per_lane.setdefault(lane, [0] * len(group))
            counts[j] = max(counts[j], index + 1)
    leads = {}
    for lane, counts in sends_per_lane.items():
        slices = len(members[lane])
        if all(count == slices for count in counts):
            leads[lane] = ALL
            continue
        j = next(i for i, count in enumerate(counts) if count)
        lead = j + 1 - counts[j]
        if any(count != max(0, min(slices, i + 1 - lead)) for i, count in enumerate(counts)):
            return None
        leads[lane] = lead
    return leads


def _groups(lanes: int, pairs: Int64s) -> Int32s:
    """Group of each lane: lanes that wait for each other slice by slice form one; if groups then wait in a circle, all form one."""
    group = np.arange(lanes)
    together = pairs[pairs[:, 2] != ALL]
    if len(together):
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        graph = coo_array((np.ones(len(together)), (together[:, 0], together[:, 1])), shape=(lanes, lanes))
        _, group = connected_components(graph, directed=False)
    waits: dict[int, set[int]] = {}
    for waiting, on in group[pairs[:, :2]].tolist():
        if waiting != on:
            waits.setdefault(waiting, set()).add(on)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return np.zeros(lanes, dtype=np.int32)
    return np.asarray(np.unique(group, return_inverse=True)[1], dtype=np.int32)
