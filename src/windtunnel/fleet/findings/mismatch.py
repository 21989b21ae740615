"""Collectives that do not belong together: ranks of a group that call different operations, or with different sizes, at the same
place of their order, or that are in different groups.

Such a job hangs, or its library raises. While a job moves, nothing is compared: sizes of some operations may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.records.sections import Section, Sections

UNEVEN = ("all_gather", "all_to_all", "all_to_all_single", "reduce_scatter", "gather", "scatter")
"""Operations whose ranks may pass different sizes."""
LOOKED_AT = 256
"""Last calls of each group that are compared."""

_Call = tuple[int, str, int]
"""Comm, name, bytes (-1: not compared)."""


@dataclass(frozen=True)
class Mismatch:
    """A call of a group in which ranks do not agree."""

    group: str
    number: int
    ranks: tuple[int, ...]
    """Those that differ from most of the group; all, if no side has more."""
    reasons: Mapping[int, str]
    """Rank → what it called where others called something else."""


def find_mismatches(sections: Sections, labels: Sequence[str]) -> list[Mismatch]:
    """The first call of each group in which its ranks do not agree, if none of the later ones agrees. `labels`: of the groups."""
    rows = np.flatnonzero((sections.section == Section.CALL) & (sections.peer < 0) & (sections.group >= 0) & (sections.call >= 0))
    found = []
    for group in np.unique(sections.group[rows]).tolist():
        members = sections.groups[group]
        mine = rows[sections.group[rows] == group]
        if len(members) < 2 or not len(mine):
            continue
        mine = mine[sections.call[mine] > sections.call[mine].max() - LOOKED_AT]
        calls: dict[int, dict[int, _Call]] = {}
        for row in mine.tolist():
            calls.setdefault(int(sections.call[row]), {})[int(sections.rank[row])] = _call_of(sections, row)
        agreed = max((number for number, of in calls.items() if len(of) == len(members) and len(set(of.values())) == 1), default=-1)
        wrong = [number for number, of in sorted(calls.items()) if number > agreed and len(set(of.values())) > 1]
        if wrong:
            found.append(_mismatch(labels[group], wrong[0], calls[wrong[0]]))
    return found


def _call_of(sections: Sections, row: int) -> _Call:
    name = int(sections.name[row])
    text = sections.names[name] if 0 <= name < len(sections.names) else Comm(int(sections.comm[row])).name.lower()
    size = sections.bytes[row]
    known = np.isfinite(size) and text.split()[0] not in UNEVEN
    return int(sections.comm[row]), text, int(size) if known else -1


def _mismatch(group: str, number: int, calls: Mapping[int, _Call]) -> Mismatch:
    sides = Counter(calls.values()).most_common()
    most = sides[0][1]
    usual = [call for call, count in sides if count == most]
    odd = sorted(rank for rank, call in calls.items() if len(usual) > 1 or call != usual[0])
    reasons = {}
    for rank in odd:
        others: dict[_Call, list[int]] = {}
        for other, call in sorted(calls.items()):
            if call != calls[rank] and (len(usual) > 1 or call == usual[0]):
                others.setdefault(call, []).append(other)
        there = " and ".join(f"{format_ranks(ranks)} called {_describe(call)}" for call, ranks in others.items())
        reasons[rank] = f"called {_describe(calls[rank])} as call {number} of {group}, where {there}"
    return Mismatch(group, number, tuple(odd), reasons)


def _describe(call: _Call) -> str:
    _, name, size = call
    return f"{name} of {size:,} bytes" if size >= 0 else name
