"""Rings over GPUs with direct links, without a switch: as many cycles through all GPUs as the links allow.

NCCL's graph search does the same (`src/graph/search.cc`): it adds rings while links are free. If there is no cycle through
all GPUs of the group, two GPUs without a link communicate through a third one of the group (NCCL's path type NVB).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

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
