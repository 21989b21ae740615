"""Two sequences of names that two observers of one thread wrote, laid beside each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Int64s

_LENGTHS = (32, 8, 2)
"""Names in a row that a common place begins with; shorter ones where no longer ones are found."""
_STARTS = 16
_MOST_PLACES = 1024
_COMPARED = 4096
_LOOK = 64
"""Names that one observer may have beyond the other between two common ones."""
_AGREE = 4


@dataclass(frozen=True)
class Alignment:
    """`first[i]` and `second[i]` are the same operator. `places`: how many places of the longer sequence fit equally well, of which
    the first was taken."""

    first: Int64s
    second: Int64s
    places: int


_NOTHING = Alignment(np.empty(0, np.int64), np.empty(0, np.int64), 0)


def align(first: Int64s, second: Int64s, first_numbers: Int64s, second_numbers: Int64s) -> Alignment:
    """Pairs of equal names in order. `*_numbers` [N] say which of several equal windows is meant: numbers of the operators (-1
    none), which are equal where both observers saw the same one.

    The beginning of the shorter sequence is looked for in the longer one; of several places the one with the most equal numbers,
    then names, is taken, then the first. From there both are followed in both directions; where they part, the next place where a
    few names agree again is taken.
    """
    if len(first) > len(second):
        turned = align(second, first, second_numbers, first_numbers)
        return Alignment(turned.second, turned.first, turned.places)
    anchor = _anchor(first, second, first_numbers, second_numbers)
    if anchor is None:
        return _NOTHING
    at, place, places = anchor
    after = _follow(first[at:], second[place:])
    before = _follow(first[:at][::-1], second[:place][::-1])
    return Alignment(
        np.concatenate([(at - 1 - before[0])[::-1], after[0] + at]),
        np.concatenate([(place - 1 - before[1])[::-1], after[1] + place]),
        places,
    )


def _anchor(short: Int64s, long: Int64s, short_numbers: Int64s, long_numbers: Int64s) -> tuple[int, int, int] | None:
    """A place in both sequences that are the same operator, and how many places are as good; None where nothing agrees."""
    for length in _LENGTHS:
        length = min(length, len(short))
        for at in range(0, max(len(short) - length, 0) + 1, max(1, len(short) // _STARTS)):
            found = _places(short[at : at + length], long)[:_MOST_PLACES] if length else _NOTHING.first
            if not len(found):
                continue
            scores = []
            for place in found:
                count = min(len(short) - at, len(long) - place, _COMPARED)
                same = short[at : at + count] == long[place : place + count]
                numbers = short_numbers[at : at + count]
                equal = same & (numbers >= 0) & (numbers == long_numbers[place : place + count])
                scores.append((int(equal.sum()), int(same.sum())))
            best = max(scores)
            return at, int(found[scores.index(best)]), 1 if best[0] else scores.count(best)
    return None


def _places(piece: Int64s, inside: Int64s) -> Int64s:
    """Where `piece` stands inside another sequence."""
    count = len(inside) - len(piece) + 1
    if count <= 0:
        return np.empty(0, np.int64)
    found = np.flatnonzero(inside[:count] == piece[0])
    for offset in range(1, len(piece)):
        found = found[inside[found + offset] == piece[offset]]
    return found


def _follow(first: Int64s, second: Int64s) -> tuple[Int64s, Int64s]:
    """Places of both sequences that belong together, from the beginning of both."""
    runs: list[tuple[int, int, int]] = []
    i = j = 0
    while i < len(first) and j < len(second):
        count = min(len(first) - i, len(second) - j, _COMPARED)
        apart = np.flatnonzero(first[i : i + count] != second[j : j + count])
        length = int(apart[0]) if len(apart) else count
        if length:
            runs.append((i, j, length))
        i, j = i + length, j + length
        if len(apart):
            step = _rejoin(first[i : i + _LOOK + _AGREE].tolist(), second[j : j + _LOOK + _AGREE].tolist())
            if step is None:
                break
            i, j = i + step[0], j + step[1]
    if not runs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return (
        np.concatenate([np.arange(begin, begin + length) for begin, _, length in runs]),
        np.concatenate([np.arange(begin, begin + length) for _, begin, length in runs]),
    )


def _rejoin(first: list[int], second: list[int]) -> tuple[int, int] | None:
    """The fewest names to leave out of both so that a few agree again."""
    places: dict[tuple[int, ...], int] = {}
    for at in range(len(second) - _AGREE, -1, -1):
        places[tuple(second[at : at + _AGREE])] = at
    steps = [
        (at + places[piece], at) for at in range(len(first) - _AGREE + 1) if (piece := tuple(first[at : at + _AGREE])) in places
    ]
    if not steps:
        return None
    both, own = min(steps)
    return own, both - own
