"""Table of ranks × steps from sections: own work of each rank, its waiting, and its lateness at calls.

Who waits for whom: the ranks that come last to collectives, and for how long the others wait for them.

Matches calls of different ranks that belong together: a collective of a group, a send and its receive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.records.sections import NO_CORE, NO_CORE_IN_STEP, Section, Sections

WORK = (Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER, Section.INFERENCE)
"""Sections in which a rank computes. Time in calls and gaps inside them is subtracted."""
PARTS = (*WORK, Section.CALL, Section.DATA, Section.CHECKPOINT, Section.HOST_GAP)
"""Sections that account for the time of a step."""
SERIES = ("step", "own", "starved", "blocked", "unfed", "late", "outside")
"""Fields of a `StepTable` of one value for each rank and step."""


@dataclass(frozen=True)
class StepTable:
    """R ranks × S steps, seconds; NaN if a rank has no record of a step."""

    ranks: Int64s
    steps: Int64s
    hosts: tuple[str, ...]
    """[R]"""
    roles: Int32s
    """[R]; ranks of one role do the same work."""
    step: Floats
    """[R, S]: length of the step."""
    work: Mapping[Section, Floats]
    """Each [R, S]: the rank's own time in a section, without blocking calls and host gaps. Includes DATA, CHECKPOINT and HOST_GAP.
    """
    own: Floats
    """[R, S]: sum of `work` over `WORK`."""
    starved: Floats
    """[R, S]: time that `WORK` was delayed because the process was runnable but had no core; not part of `own` or `work`."""
    blocked: Floats
    """[R, S]: time that calls blocked the rank; calls in flight together count once."""
    unfed: Floats
    """[R, S]: time of the whole step in which the process was runnable but had no core; NaN unknown."""
    late: Floats
    """[R, S]: lateness at calls relative to the median rank of the group, averaged over the step's calls."""
    outside: Floats
    """[R, S]: time of the step in none of `PARTS`, such as Python between optimizer and forward, without waits for a core."""

    @property
    def steps_ended(self) -> int:
        """Number of steps that some rank has completed; the step in progress has records too."""
        return int(np.isfinite(self.step).any(axis=0).sum())

    def change_series(self, steps: Int64s, change: Callable[[Floats], Floats]) -> StepTable:
        """The table of other `steps`, each of its series changed alike."""
        series: dict[str, Any] = {name: change(getattr(self, name)) for name in SERIES}
        return replace(self, steps=steps, work={section: change(values) for section, values in self.work.items()}, **series)

    def take(self, columns: Int64s) -> StepTable:
        """The table of some of its steps."""
        return self.change_series(self.steps[columns], lambda values: values[:, columns])


def step_table(sections: Sections, roles: Mapping[int, int] | None = None) -> StepTable:
    """The table of all complete sections. `roles`: rank → kind of work (its pipeline stage); without it all ranks do the same.

    Ranks must be on one clock (`clocks.align`) for `late`. Sections of a rank may not overlap, except for calls and gaps, which lie
    inside others or between them.
    """
    done = sections.where(np.isfinite(sections.seconds) & (sections.step >= 0))
    ranks, row = np.unique(done.rank, return_inverse=True)
    steps, column = np.unique(done.step, return_inverse=True)
    shape = (len(ranks), len(steps))
    cell = row * len(steps) + column
    no_core = (done.section == Section.HOST_GAP) & (done.name == _number_of_name(done.names, NO_CORE))
    of_step = (done.section == Section.HOST_GAP) & (done.name == _number_of_name(done.names, NO_CORE_IN_STEP))
    held, gaps, waits = _held_up(done, row, no_core, ~of_step)
    work = {}
    for section in (*WORK, Section.DATA, Section.CHECKPOINT, Section.HOST_GAP):
        mine = (done.section == section) & ~no_core & ~of_step
        inside = held[mine] + gaps[mine] + waits[mine] if section in WORK else 0.0
        work[section] = _sums(cell[mine], np.maximum(done.seconds[mine] - inside, 0.0), shape)
    lengths = _sums(cell[done.section == Section.STEP], done.seconds[done.section == Section.STEP], shape)
    known = np.isfinite(np.stack([work[section] for section in WORK]))
    own = np.where(known.any(0), np.nansum(np.stack([work[section] for section in WORK]), 0), np.nan)
    working = np.isin(done.section, WORK)
    starved = _sums(cell[working], waits[working], shape)
    calls = done.section == Section.CALL
    blocked = np.where(
        _sums(cell[calls], done.seconds[calls], shape) >= 0.0,
        _united_seconds(done, np.flatnonzero(calls), _blocked_seconds(done), cell, row, shape), np.nan,
    )  # fmt: skip
    role = np.array([(roles or {}).get(int(rank), 0) for rank in ranks], np.int32)
    hosts = tuple(done.hosts.get(int(rank), "") for rank in ranks)
    late = _lateness(done, cell, shape)
    unfed = np.fmax(_sums(cell[of_step], done.seconds[of_step], shape), starved)
    between = np.maximum(np.nan_to_num(unfed) - np.nan_to_num(starved), 0.0)
    parts = np.flatnonzero(np.isin(done.section, PARTS) & ~of_step)
    outside = np.maximum(lengths - _united_seconds(done, parts, done.seconds, cell, row, shape), 0.0)
    outside, work[Section.DATA] = _take_off_waits(outside, work[Section.DATA], between)
    return StepTable(ranks.astype(np.int64), steps, hosts, role, lengths, work, own, starved, blocked, unfed, late, outside)


def join_tables(earlier: StepTable, later: StepTable) -> StepTable:
    """Both tables as one; of a step that is in both, what `later` has of it."""
    ranks = np.union1d(earlier.ranks, later.ranks)
    before = ~np.isin(earlier.steps, later.steps[np.isfinite(later.step).any(axis=0)])
    after = ~np.isin(later.steps, earlier.steps[before])
    steps = np.concatenate([earlier.steps[before], later.steps[after]])
    order = np.argsort(steps, kind="stable")
    first, second = np.searchsorted(ranks, earlier.ranks), np.searchsorted(ranks, later.ranks)

    def join(one: Floats, other: Floats) -> Floats:
        out = np.full((len(ranks), len(steps)), np.nan)
        out[first, : int(before.sum())] = one[:, before]
        out[second, int(before.sum()) :] = other[:, after]
        return out[:, order]

    known = {int(rank): row for rank, row in zip(earlier.ranks, range(len(earlier.ranks)), strict=True)}
    new = {int(rank): row for rank, row in zip(later.ranks, range(len(later.ranks)), strict=True)}
    which = [(later, new[int(rank)]) if int(rank) in new else (earlier, known[int(rank)]) for rank in ranks]
    work = {section: join(earlier.work[section], later.work[section]) for section in later.work}
    joined = {name: join(getattr(earlier, name), getattr(later, name)) for name in SERIES}
    return StepTable(
        ranks, steps[order], tuple(table.hosts[row] for table, row in which),
        np.array([table.roles[row] for table, row in which], np.int32), work=work, **joined,
    )  # fmt: skip


def _united_seconds(done: Sections, rows: Int64s, seconds: Floats, cell: Int64s, row: Int64s, shape: tuple[int, int]) -> Floats:
    """Seconds of each step in any of the sections `rows`, each of which takes `seconds` [N]: what overlaps counts once. [R, S]"""
    if not len(rows):
        return np.zeros(shape)
    begin, end = done.begin[rows], done.begin[rows] + seconds[rows]
    apart = row[rows] * (float(end.max() - begin.min()) + 1.0)
    order = np.argsort(apart + begin, kind="stable")
    begin, end = (apart + begin)[order], (apart + end)[order]
    until = np.append(-np.inf, np.maximum.accumulate(end)[:-1])
    new = np.maximum(end - np.maximum(begin, until), 0.0)
    return np.asarray(np.bincount(cell[rows[order]], new, shape[0] * shape[1]), np.float64).reshape(shape)


def _take_off_waits(outside: Floats, data: Floats, unfed: Floats) -> tuple[Floats, Floats]:
    """Time outside and in data without waits for a core, which are taken off the first, then off the second."""
    left = np.maximum(unfed - np.nan_to_num(outside), 0.0)
    return np.maximum(outside - unfed, 0.0), np.maximum(data - left, 0.0)


def _number_of_name(names: tuple[str, ...], name: str) -> int:
    """The number of a name; an unused number if there is no such name."""
    return names.index(name) if name in names else len(names)


def _sums(cell: Int64s, values: Floats, shape: tuple[int, int]) -> Floats:
    """Sums by cell; NaN if a cell has no value."""
    size = shape[0] * shape[1]
    total = np.bincount(cell, values, size)
    return np.where(np.bincount(cell, minlength=size) > 0, total, np.nan).reshape(shape)


def _blocked_seconds(done: Sections) -> Floats:
    """Seconds that each call blocks its rank, as far as the rank itself knows."""
    return np.minimum(np.where(np.isfinite(done.host_seconds), done.host_seconds, done.seconds), done.seconds)


def _held_up(done: Sections, row: Int64s, no_core: Bools, counted: Bools) -> tuple[Floats, Floats, Floats]:
    """For each section of `WORK`: seconds that calls inside it blocked it, seconds of gaps inside it, and of its waits for a core.
    [N], 0 elsewhere. Only rows that are `counted` lie inside.

    A call blocks for its time on the host. A call that still runs when its section ends blocked the section from its issue on,
    because the section could not end earlier (DDP waits for its last buckets this way). Only the sum of waits for a core is known.
    A thread that is blocked in a call sleeps and needs no core, so the waits are in the rest of the section, as far as they fit.
    """
    held, gaps, waits = np.zeros(len(done)), np.zeros(len(done)), np.zeros(len(done))
    outer = np.flatnonzero(np.isin(done.section, WORK))
    if not len(outer):
        return held, gaps, waits
    span = float(np.nanmax(done.begin + done.seconds) - np.nanmin(done.begin)) + 1.0
    key = row * span + (done.begin - np.nanmin(done.begin))
    outer = outer[np.argsort(key[outer], kind="stable")]
    inner = np.flatnonzero(((done.section == Section.CALL) | (done.section == Section.HOST_GAP)) & counted)
    place = np.searchsorted(key[outer], key[inner], side="right") - 1
    inside = place >= 0
    host = outer[np.maximum(place, 0)]
    end = done.begin + done.seconds
    inside &= (row[host] == row[inner]) & (done.begin[inner] < end[host])
    inner, host = inner[inside], host[inside]
    left = end[host] - done.begin[inner]  # seconds of the section after the call began
    is_call = done.section[inner] == Section.CALL
    waiting = no_core[inner]
    gap = ~is_call & ~waiting
    np.add.at(gaps, host[gap], np.minimum(done.seconds[inner], left)[gap])
    np.add.at(waits, host[waiting], np.minimum(done.seconds[inner], left)[waiting])
    np.add.at(held, host[is_call], np.minimum(_blocked_seconds(done)[inner], left)[is_call])
    tail = is_call & (end[inner] >= end[host] - 1e-6)
    last = np.full(len(done), np.inf)
    np.minimum.at(last, host[tail], left[tail])
    held = np.where(np.isfinite(last), np.maximum(held, last), held)
    held = np.minimum(held, done.seconds)
    return held, gaps, np.minimum(waits, np.maximum(done.seconds - held - gaps, 0.0))


def _lateness(done: Sections, cell: Int64s, shape: tuple[int, int]) -> Floats:
    """Mean over the matched calls of a rank's step of its begin minus the median begin of the call. [R, S]"""
    calls = np.flatnonzero((done.section == Section.CALL) & (done.group >= 0) & (done.call >= 0) & (done.peer < 0))
    empty = np.full(shape, np.nan)
    if not len(calls):
        return empty
    order = calls[np.lexsort((done.begin[calls], done.call[calls], done.group[calls]))]
    group, call, begin = done.group[order], done.call[order], done.begin[order]
    first = np.flatnonzero(np.append(True, (np.diff(group) != 0) | (np.diff(call) != 0)))
    size = np.diff(np.append(first, len(order)))
    middle = begin[first + (size - 1) // 2]
    shared = np.repeat(size > 1, size)
    late = (begin - np.repeat(middle, size))[shared]
    where = cell[order[shared]]
    counts = np.bincount(where, minlength=empty.size)
    total = np.bincount(where, late, empty.size)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan).reshape(shape)


def roles_of(meshes: Sequence[Mapping[str, Any]], world: int) -> dict[int, int]:
    """Rank → pipeline stage, from device meshes as the monitor records them (`names`, `shape`, `ranks`).

    Empty if no mesh has an axis `pp`; `roles_of_groups` may know then.
    """
    for mesh in meshes:
        names = [str(name) for name in mesh.get("names", ())]
        if "pp" in names:
            ranks = np.asarray(mesh["ranks"], np.int64).reshape([int(extent) for extent in mesh["shape"]])
            stages = np.moveaxis(ranks, names.index("pp"), 0)
            return {int(rank): stage for stage, part in enumerate(stages) for rank in part.ravel() if int(rank) < world}
    return {}


def roles_of_groups(sections: Sections) -> dict[int, int]:
    """Rank → pipeline stage, from its position in its group `pp` (Megatron-Core creates groups and no mesh). Empty without such
    groups.
    """
    groups = zip(sections.group_names, sections.groups, strict=False)
    return {rank: stage for name, ranks in groups if name == "pp" for stage, rank in enumerate(ranks)}


MOST_WAITS = 4
"""Ranks that a rank waits for, of which is told."""


def waits_of_ranks(sections: Sections, ranks: Sequence[int], steps: int) -> list[list[list[float]]]:
    """For each rank: [rank that came last, milliseconds of a step that this one waited for it], most first."""
    found: list[list[list[float]]] = [[] for _ in ranks]
    ended = np.flatnonzero((sections.section == Section.CALL) & np.isfinite(sections.seconds))
    rows, starts = complete_collectives(sections, ended)
    if not len(rows):
        return found
    sizes = np.diff(np.append(starts, len(rows)))
    begin, rank = sections.begin[rows], sections.rank[rows].astype(np.int64)
    latest = np.maximum.reduceat(begin, starts)
    meeting = np.repeat(np.arange(len(starts)), sizes)
    came_last = np.flatnonzero(begin == latest[meeting])
    last = rank[came_last[np.searchsorted(meeting[came_last], np.arange(len(starts)))]][meeting]
    lost = np.minimum(latest[meeting] - begin, sections.seconds[rows])
    places = np.full(int(max(rank.max(), *ranks)) + 1, -1, np.int64)
    places[np.asarray(ranks, np.int64)] = np.arange(len(ranks))
    waits = (rank != last) & (lost > 0) & (places[rank] >= 0)
    size = int(last.max()) + 1
    keys, which = np.unique(places[rank[waits]] * size + last[waits], return_inverse=True)
    total = np.bincount(which.ravel(), lost[waits], len(keys)) / max(steps, 1) * 1e3
    for at in np.lexsort((-total, keys // size)).tolist():
        mine = found[int(keys[at]) // size]
        if len(mine) < MOST_WAITS:
            mine.append([int(keys[at]) % size, round(float(total[at]), 3)])
    return found


def waited_for(sections: Sections, ranks: Sequence[int], steps: int) -> dict[int, float]:
    """Rank → seconds of a step that the rank which waits longest for it waits."""
    found: dict[int, float] = {}
    for waits in waits_of_ranks(sections, ranks, steps) if len(ranks) else ():
        for last, milliseconds in waits:
            found[int(last)] = max(found.get(int(last), 0.0), milliseconds * 1e-3)
    return found


def complete_collectives(sections: Sections, calls: Int64s) -> tuple[Int64s, Int64s]:
    """Of the rows `calls`, those of collectives for which all ranks of the group have a row, grouped by collective, and the index
    at which each collective begins.
    """
    none = np.zeros(0, np.int64)
    calls = calls[(sections.peer[calls] < 0) & (sections.group[calls] >= 0) & (sections.call[calls] >= 0)]
    if not len(calls):
        return none, none
    order = calls[np.lexsort((sections.call[calls], sections.group[calls]))]
    new = (np.diff(sections.group[order]) != 0) | (np.diff(sections.call[order]) != 0)
    starts = np.concatenate([[0], np.flatnonzero(new) + 1])
    sizes = np.diff(np.append(starts, len(order)))
    members = np.array([len(ranks) for ranks in sections.groups], np.int64)[sections.group[order[starts]]]
    whole = (sizes == members) & (sizes > 1)
    complete_sizes = sizes[whole]
    return order[np.repeat(whole, sizes)], np.cumsum(complete_sizes) - complete_sizes


def match_collectives(sections: Sections, calls: Int64s) -> list[Int64s]:
    """Of the rows `calls`, the rows of each collective for which all ranks of the group have one."""
    rows, starts = complete_collectives(sections, calls)
    return np.split(rows, starts[1:]) if len(starts) else []


def match_sends(sections: Sections, calls: Int64s) -> Int64s:
    """Of the rows `calls`, each send with its receive [n, 2]: they have the same number among those from the sender to the
    receiver.
    """
    calls = calls[(sections.peer[calls] >= 0) & (sections.call[calls] >= 0)]
    sends = sections.sends[calls]
    source = np.where(sends, sections.rank[calls], sections.peer[calls])
    target = np.where(sends, sections.peer[calls], sections.rank[calls])
    order = np.lexsort((~sends, sections.call[calls], target, source))
    calls, source, target, sends = calls[order], source[order], target[order], sends[order]
    number = sections.call[calls]
    same = (np.diff(source) == 0) & (np.diff(target) == 0) & (np.diff(number) == 0)
    alone_before = np.append(True, ~same)[:-1] if len(calls) else same
    alone_after = np.append(~same, True)[1:] if len(calls) else same
    first = np.flatnonzero(same & alone_before & alone_after & sends[:-1] & ~sends[1:])
    return np.stack([calls[first], calls[first + 1]], axis=1)
