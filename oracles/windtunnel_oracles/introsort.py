"""The order in which `std::sort` of GNU's C++ library leaves elements with equal keys, which LogGOPSim's matching depends on.

Introsort (Musser 1997) as bits/stl_algo.h has it: median of three, partitions down to 16 elements, then insertion.
"""

from __future__ import annotations

from collections.abc import Sequence

THRESHOLD = 16


def by_key(items: Sequence[int], key: Sequence[int]) -> list[int]:
    """Items by their key, which is `key[item]`."""
    out = [(key[item], item) for item in items]
    if len(out) > THRESHOLD:
        _partition_ranges(out, 0, len(out), 2 * (len(out).bit_length() - 1))
        _insert_all(out, 0, THRESHOLD)
        for at in range(THRESHOLD, len(out)):
            _sink(out, at)
    else:
        _insert_all(out, 0, len(out))
    return [item for _, item in out]


def _partition_ranges(out: list[tuple[int, int]], first: int, last: int, depth: int) -> None:
    while last - first > THRESHOLD:
        if depth == 0:  # there a heap sort, which a handful of distinct keys never comes to
            out[first:last] = sorted(out[first:last], key=lambda pair: pair[0])
            return
        depth -= 1
        _median_to_first(out, first, first + 1, first + (last - first) // 2, last - 1)
        cut = _partition(out, first + 1, last, first)
        _partition_ranges(out, cut, last, depth)
        last = cut


def _median_to_first(out: list[tuple[int, int]], first: int, a: int, b: int, c: int) -> None:
    low, middle, high = out[a][0], out[b][0], out[c][0]
    rising, falling = (b if middle < high else c if low < high else a), (a if low < high else c if middle < high else b)
    chosen = rising if low < middle else falling
    out[first], out[chosen] = out[chosen], out[first]


def _partition(out: list[tuple[int, int]], first: int, last: int, pivot: int) -> int:
    key = out[pivot][0]
    while True:
        while out[first][0] < key:
            first += 1
        last -= 1
        while key < out[last][0]:
            last -= 1
        if first >= last:
            return first
        out[first], out[last] = out[last], out[first]
        first += 1


def _insert_all(out: list[tuple[int, int]], first: int, last: int) -> None:
    for at in range(first + 1, last):
        _sink(out, at)


def _sink(out: list[tuple[int, int]], at: int) -> None:
    """Moves an element before those with a larger key."""
    value = out[at]
    while at > 0 and value[0] < out[at - 1][0]:
        out[at] = out[at - 1]
        at -= 1
    out[at] = value
