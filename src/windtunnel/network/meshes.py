"""Rings over GPUs that are joined directly, without a switch: as many cycles through all of them as the links have room for.

NCCL's graph search does the same (`src/graph/search.cc`): it adds rings while links are left.
"""

from __future__ import annotations

from functools import lru_cache

MOST_IN_MESH = 8
_MOST_STEPS = 20_000
Ring = tuple[int, ...]


def mesh_rings(count: int, room: dict[tuple[int, int], int]) -> tuple[Ring, ...]:
    """Directed Hamiltonian cycles of `count` GPUs, from GPU 0 on, that use each link (a, b) at most `room[a, b]` times: the largest
    set that a search of bounded length finds. A cycle and its reverse are different ones.
    """
    return _rings(count, tuple(sorted(room.items())))


@lru_cache(maxsize=64)
def _rings(count: int, links: tuple[tuple[tuple[int, int], int], ...]) -> tuple[Ring, ...]:
    if count < 3:
        ring = tuple(range(count))
        return (ring,) * min((n for _, n in links), default=0)
    room = dict(links)
    most = min(min(sum(n for (a, _), n in links if a == gpu), sum(n for (_, b), n in links if b == gpu)) for gpu in range(count))
    best: list[Ring] = []
    steps = 0

    def cycles(way: list[int]) -> list[Ring]:
        """Cycles that still fit and start with `way`, the roomiest links first."""
        if len(way) == count:
            return [tuple(way)] if room.get((way[-1], 0), 0) > 0 else []
        found = []
        for following in sorted(range(1, count), key=lambda g: -room.get((way[-1], g), 0)):
            if following not in way and room.get((way[-1], following), 0) > 0:
                found += cycles([*way, following])
        return found

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
            pairs = list(zip(ring, (*ring[1:], ring[0]), strict=True))
            for pair in pairs:
                room[pair] -= 1
            done = add([*chosen, ring])
            for pair in pairs:
                room[pair] += 1
            if done:
                return True
        return False

    add([])
    return tuple(best)
