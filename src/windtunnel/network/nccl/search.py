"""NCCL's graph search over the links of a node: how many channels, how fast each, through which GPUs and NICs.

A short form of `ncclTopoCompute` (`src/graph/search.cc` of NCCL 2.30.7): speeds of a list are tried from the fastest on; at each,
channels are added while every link on their way has room for it; a slower speed is taken where its channels move more in all, and
the list ends at less than half of the best speed. All channels of a graph have one speed. On NVSwitches and PCIe the order of GPUs
is theirs or the reverse; on direct links it is searched for. NCCL also tries worse kinds of paths one after the other and gives up
after a while; here a path between two GPUs is the shortest.

Rings over GPUs with direct links, without a switch: as many cycles through all GPUs as the links allow.

NCCL's graph search does the same (`src/graph/search.cc`): it adds rings while links are free. If there is no cycle through all GPUs
of the group, two GPUs without a link communicate through a third one of the group (NCCL's path type NVB).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.engine.graph import NodeKind
from windtunnel.network.fabrics.server import Inside, site_of
from windtunnel.network.groups.bandwidth import generation_of
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.graph_file import gpu_beside
from windtunnel.spec.machine import Node

MOST_IN_MESH = 8
_MOST_STEPS = 20_000
Ring = tuple[int, ...]
Pair = tuple[int, int]


class MeshRings(NamedTuple):
    """Cycles, from GPU 0 on, and the GPU between the two of each pair (a, b) that is on a cycle and has no link of its own."""

    rings: tuple[Ring, ...] = ()
    through: tuple[tuple[Pair, int], ...] = ()


def mesh_rings(count: int, room: dict[Pair, int]) -> MeshRings:
    """Directed Hamiltonian cycles of `count` GPUs that use each link (a, b) at most `room[a, b]` times: the largest set that a
    search of bounded length finds. A cycle and its reverse are different ones. Pairs go through a third GPU only if there is no
    cycle otherwise.
    """
    links = tuple(sorted(room.items()))
    rings = _rings(count, links, ())
    if rings or count < 3:
        return MeshRings(rings)
    through = tuple(_through(count, room).items())
    rings = _rings(count, links, through)
    used = {pair for ring in rings for pair in _pairs(ring)}
    return MeshRings(rings, tuple((pair, gpu) for pair, gpu in through if pair in used))


def _through(count: int, room: dict[Pair, int]) -> dict[Pair, int]:
    """For each pair without a link, the intermediate GPU with the most free links, if there is one."""
    via = {}
    for pair in ((a, b) for a in range(count) for b in range(count) if a != b and room.get((a, b), 0) == 0):
        widths = [min(room.get((pair[0], c), 0), room.get((c, pair[1]), 0)) for c in range(count)]
        if max(widths) > 0:
            via[pair] = widths.index(max(widths))
    return via


def _pairs(ring: Ring) -> list[Pair]:
    return list(zip(ring, (*ring[1:], ring[0]), strict=True))


@lru_cache(maxsize=64)
def _rings(count: int, links: tuple[tuple[Pair, int], ...], through: tuple[tuple[Pair, int], ...]) -> tuple[Ring, ...]:
    if count < 3:
        ring = tuple(range(count))
        return (ring,) * min((n for _, n in links), default=0)
    room, relays = dict(links), dict(through)
    most = min(min(sum(n for (a, _), n in links if a == gpu), sum(n for (_, b), n in links if b == gpu)) for gpu in range(count))
    best: list[Ring] = []
    steps = 0

    def links_of_way(pair: Pair) -> list[Pair]:
        """Links of a way."""
        return [(pair[0], relays[pair]), (relays[pair], pair[1])] if pair in relays else [pair]

    def width(pair: Pair) -> int:
        return min(room.get(link, 0) for link in links_of_way(pair))

    def cycles(way: list[int]) -> list[Ring]:
        """Cycles that still fit and start with `way`; links with the most room first."""
        if len(way) == count:
            return [tuple(way)] if width((way[-1], 0)) > 0 else []
        rings = []
        for following in sorted(range(1, count), key=lambda g: -width((way[-1], g)) if g != way[-1] else 0):
            if following not in way and width((way[-1], following)) > 0:
                rings += cycles([*way, following])
        return rings

    def add(chosen: list[Ring]) -> bool:
        nonlocal best, steps
        if len(chosen) > len(best):
            best = list(chosen)
        if len(best) == most:
            return True
        for ring in cycles([0]):
            steps += 1
            if steps > _MOST_STEPS:
                return True
            used = [link for pair in _pairs(ring) for link in links_of_way(pair)]
            for link in used:
                room[link] -= 1
            complete = min(room[link] for link in used) >= 0 and add([*chosen, ring])
            for link in used:
                room[link] += 1
            if complete:
                return True
        return False

    add([])
    return tuple(best)


PATTERNS = {"ring": 4, "balanced_tree": 1, "tree": 3, "nvls": 5}
"""NCCL's numbers."""
_SMALLEST = 0.49
_INTRA = {
    "ampere": (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    "hopper": (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0),
    "blackwell": (90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0),
}
_SLOW = (2.4, 1.2, 0.24, 0.12)
_INTER = {
    "ampere": (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, *_SLOW),
    "hopper": (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, *_SLOW),
    "blackwell": (96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, *_SLOW),
}
_MOST = c.MAX_CHANNELS // 2
_PCI = 12.0
"""GB/s that NCCL counts for 16 lanes of generation 3; each later one has twice as much."""
Way = tuple[int, ...]


@dataclass(frozen=True)
class SearchedGraph:
    """A graph: `intra`, `inter` GB/s of a channel; its GPUs and, between nodes, NICs; the kinds of path as NCCL names them."""

    pattern: str
    intra: float
    inter: float
    orders: tuple[tuple[int, ...], ...]
    nets: tuple[tuple[int, int], ...]
    type_intra: str
    type_inter: str

    @property
    def channels(self) -> int:
        return len(self.orders)


@dataclass
class CountedLinks:
    """A node's links with what NCCL counts of them, GB/s each way."""

    gpus: int
    nics: int
    kind: list[int]
    room: dict[tuple[int, int], float] = field(default_factory=dict)
    ways: dict[tuple[int, int], Way] = field(default_factory=dict)

    def way(self, a: int, b: int) -> Way:
        """Nodes from a to b, both included: the fewest links, of equally many the widest."""
        if (a, b) not in self.ways:
            best: dict[int, tuple[int, float, Way]] = {a: (0, float("inf"), (a,))}
            edge = [a]
            while edge and b not in best:
                following: dict[int, tuple[int, float, Way]] = {}
                for at in edge:
                    hops, width, nodes = best[at]
                    for (one, two), room in self.room.items():
                        through = self.kind[two] in (NodeKind.GPU, NodeKind.NIC) and two != b
                        if one != at or two in best or through or room <= 0.0:
                            continue
                        found = (hops + 1, min(width, room), (*nodes, two))
                        if two not in following or found[1] > following[two][1]:
                            following[two] = found
                best |= following
                edge = list(following)
            self.ways[a, b] = best[b][2] if b in best else ()
        return self.ways[a, b]

    def take(self, left: dict[tuple[int, int], float], nodes: Way, speed: float) -> bool:
        """Whether a way has room for `speed`, which it then takes from `left`."""
        steps = list(zip(nodes, nodes[1:], strict=False))
        if not steps or any(left[step] < speed - 1e-6 for step in steps):
            return False
        for step in steps:
            left[step] -= speed
        return True

    def type_of(self, nodes: Way) -> str:
        """NCCL's name of the kind of a way."""
        kinds = [self.kind[node] for node in nodes[1:-1]]
        if all(kind == NodeKind.NVSWITCH for kind in kinds) and self.kind[nodes[0]] == self.kind[nodes[-1]] == NodeKind.GPU:
            return "NVL"
        cpus = kinds.count(NodeKind.CPU)
        return "SYS" if cpus > 1 else "PHB" if cpus else "PXB" if len(kinds) > 1 else "PIX"


def links_of(node: Node) -> CountedLinks:
    """The links of a node as NCCL counts them."""
    inside = Inside.of(node)
    kinds, _, cables = site_of(inside, 1)
    generation = generation_of(node.gpu.architecture, node.gpu.vendor == "nvidia")
    counted = c.NVLINK_COUNTED.get(generation, 0.8)
    links = CountedLinks(node.gpus, inside.nics, [int(kind) for kind in kinds])
    for a, b, rate, _ in cables:
        pair = {kinds[a], kinds[b]}
        speed = rate * 1e-9 * counted
        if NodeKind.CPU in pair:
            speed = rate * 1e-9 if len(pair) == 1 else _pci(node)
        elif NodeKind.PCIE in pair:
            speed = _pci(node)
        for ends in ((a, b), (b, a)):
            links.room[ends] = links.room.get(ends, 0.0) + speed
    return links


def _pci(node: Node) -> float:
    return _PCI * 2.0 ** (min(max(node.pcie_gen, 3), 6) - 3)


def search_graphs(node: Node, nodes: int = 1) -> tuple[SearchedGraph, ...]:
    """Ring, tree and, on NVSwitches that add, the switch reduction of one of `nodes` equal nodes, after NCCL's doubling."""
    generation = generation_of(node.gpu.architecture, node.gpu.vendor == "nvidia")
    key = generation if generation in _INTRA else "ampere"
    links = links_of(node)
    many = nodes > 1 and node.nic is not None
    speeds = (_INTER if many else _INTRA)[key]
    late = key != "ampere"
    ring = _search(links, "ring", speeds, node, many)
    tree = _double(_search(links, "tree" if late or not many else "balanced_tree", speeds, node, many, ring.channels), late)
    found = [_double(ring, late), _faster_inside(links, tree, speeds, node) if many else tree]
    if node.scale_up.in_switch_reduction and late:
        found.append(_switch_heads(links, speeds, node, many))
    return tuple(found)


def _search(links: CountedLinks, pattern: str, speeds: tuple[float, ...], node: Node, many: bool, least: int = 1) -> SearchedGraph:
    best: SearchedGraph | None = None
    for speed in speeds:
        if best is not None and speed / best.inter <= _SMALLEST:
            break
        found = _channels(links, pattern, speed, speed, node, many)
        if found is None or found.channels < least:
            continue
        if best is None or found.channels * speed > best.channels * best.intra * (1 + 1e-9):
            best = found
    if best is not None:
        return best
    order = tuple(range(links.gpus))
    return SearchedGraph(pattern, 0.1, 0.1, (order,), ((0, 0),) if many else (), "SYS", "SYS")


def _channels(links: CountedLinks, pattern: str, intra: float, inter: float, node: Node, many: bool) -> SearchedGraph | None:
    """As many channels as fit, at these speeds; None if there is none."""
    left = dict(links.room)
    nets = {nic: node.nic.bandwidth * 1e-9 for nic in range(links.nics)} if many and node.nic is not None else {}
    orders: list[tuple[int, ...]] = []
    chosen: list[tuple[int, int]] = []
    kinds: tuple[set[str], set[str]] = (set(), set())
    candidates = _orders(links, pattern, many)
    while len(orders) < _MOST:
        turn = len(orders)
        tried = [candidates[(turn + i) % len(candidates)] for i in range(len(candidates))]
        fitting = next((one for one in tried if _fits(links, left, nets, pattern, one, intra, inter, kinds)), None)
        if fitting is None:
            break
        order, net = fitting
        orders.append(order)
        if many:
            chosen.append((net, net))
    if not orders:
        return None
    worst = [max(one, key=("LOC", "NVL", "PIX", "PXB", "PXN", "PHB", "SYS").index, default="PIX") for one in kinds]
    return SearchedGraph(pattern, intra, inter, tuple(orders), tuple(chosen), worst[0], worst[1])


def _orders(links: CountedLinks, pattern: str, many: bool) -> list[tuple[tuple[int, ...], int]]:
    """Orders of GPUs to try, each with the NIC where it enters."""
    gpus = links.gpus
    direct = {
        (a, b): room for (a, b), room in links.room.items() if links.kind[a] == links.kind[b] == NodeKind.GPU
    }  # fmt: skip
    rings: list[tuple[int, ...]] = []
    if direct and gpus > 2:
        unit = min(direct.values())
        rings = list(mesh_rings(gpus, {pair: round(room / unit) for pair, room in direct.items()}).rings)
    if not many:
        return [(order, 0) for order in rings or [tuple(range(gpus))]]
    tries = []
    for nic in range(links.nics):
        entry = gpu_beside(nic, gpus, links.nics)
        around = rings[nic % len(rings)] if rings else tuple(range(gpus))
        at = around.index(entry)
        step = -1 if pattern == "ring" and not rings else 1
        tries.append((tuple(around[(at + step * i) % gpus] for i in range(gpus)), nic))
    return tries


def _fits(
    links: CountedLinks,
    left: dict[tuple[int, int], float],
    nets: dict[int, float],
    pattern: str,
    candidate: tuple[tuple[int, ...], int],
    intra: float,
    inter: float,
    kinds: tuple[set[str], set[str]],
) -> bool:
    """Whether a channel in this order has room; if so, it takes it."""
    order, nic = candidate
    before, net = dict(left), links.gpus + nic
    ways = [(links.way(a, b), intra, 0) for a, b in zip(order, order[1:], strict=False)]
    if not nets and pattern == "ring" and len(order) > 1:
        ways.append((links.way(order[-1], order[0]), intra, 0))
    if nets:
        if nets[nic] < inter:
            return False
        last = order[-1] if pattern == "ring" else order[0]
        ways.append((links.way(net, order[0]), inter, 1))
        near = links.way(order[0], net)
        inside = links.way(last, order[0]) if last != order[0] else ()
        if inside and links.type_of(inside) == "NVL":  # PXN: over NVLink to the GPU beside the NIC
            ways += [(inside, inter, 0), (near, inter, 1)]
        else:
            ways.append((links.way(last, net), inter, 1))
    if not all(links.take(left, way, speed) for way, speed, _ in ways):
        left.update(before)
        return False
    for way, _, which in ways:
        kinds[which].add(links.type_of(way))
    if nets and last != order[0] and links.type_of(links.way(last, order[0])) == "NVL":
        kinds[1].add("PXN")
    if nets:
        nets[nic] -= inter
    return True


def _faster_inside(links: CountedLinks, tree: SearchedGraph, speeds: tuple[float, ...], node: Node) -> SearchedGraph:
    """The tree with a faster speed inside the node, at most twice that of its NICs, if as many channels have it."""
    for speed in reversed([one for one in speeds if one > tree.inter]):
        if tree.intra >= 2.0 * tree.inter:
            break
        found = _channels(links, tree.pattern, speed, tree.inter, node, True)
        if found is None or found.channels < tree.channels:
            break
        tree = found
    return tree


def _double(found: SearchedGraph, late: bool) -> SearchedGraph:
    """Channels of 25 GB/s or more are run by two, unless a late GPU has several slow ones."""
    if found.intra < 25.0 or (late and found.intra < 50.0 and found.channels > 4):
        return found
    number = min(2 * found.channels, _MOST)
    times = -(-number // found.channels)
    orders, nets = (found.orders * 2)[:number], (found.nets * 2)[:number]
    return SearchedGraph(found.pattern, found.intra / times, found.inter / times, orders, nets, found.type_intra, found.type_inter)


def _switch_heads(links: CountedLinks, speeds: tuple[float, ...], node: Node, many: bool) -> SearchedGraph:
    """A channel for each GPU, which pulls from all: the fastest speed at which a GPU's links carry all of them."""
    heads = min(links.gpus, 32)
    rate = max((room for (a, _), room in links.room.items() if a == 0), default=0.0)
    net = node.nic.bandwidth * 1e-9 * min(node.nic.count, heads) / heads if many and node.nic is not None else float("inf")
    speed = next((one for one in speeds if one * heads <= rate and one <= net), speeds[-1])
    nets = tuple((gpu * links.nics // links.gpus,) * 2 for gpu in range(heads)) if many else ()
    return SearchedGraph("nvls", speed, speed, tuple((gpu,) for gpu in range(heads)), nets, "NVL", "PIX")
