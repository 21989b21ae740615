"""Folds replicas into groups: replicas that take the same time and meet the same others are simulated once."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.predict.ranks.draws import Draw
from windtunnel.predict.ranks.places import Ranks, joined_replicas, smallest_connected, units_of
from windtunnel.spec import Job
from windtunnel.spec.requirements.unequal_ranks import micro_batches
from windtunnel.spec.unequal import Unequal
from windtunnel.workload import Axis

PARTIAL = (Axis.SHARD, Axis.REPLICA, Axis.NEAR, Axis.FAR, Axis.EXPERT_DP, Axis.EXPERT_SHARD, Axis.EXPERT_REPLICA)
"""Axes on whose calls some replicas of a stage meet, depending on the plan."""
MEETING = (Axis.DP, Axis.WORLD, *PARTIAL)
"""Axes on whose calls replicas meet."""


@dataclass(frozen=True)
class Pace:
    """The speed of one stage of a group: in each respect that of its slowest rank.

    `kinds`: bit k is set if a rank of kind `Ranks.clusters[k]` is among them. `pauses`: (place in the order of passes from 0 to 1,
    seconds) of the host.
    """

    kinds: int = 1
    slow: float = 1.0
    product: float = 1.0
    pauses: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Replicas:
    """Equal replicas: data-parallel indices, the pace of each stage, micro batches of each replica, and `members`, the ranks of a
    stage that share a pace. `partners[axis]`: groups that it meets on the axis, itself included."""

    indices: tuple[int, ...]
    paces: tuple[Pace, ...]
    micro_batches: int
    members: int
    partners: dict[Axis, tuple[int, ...]]


def fold(job: Job, unequal: Unequal, ranks: Ranks, draw: Draw) -> list[Replicas]:
    """Groups of the job's replicas, the largest first.

    Ranks of a replica meet in every layer, and so do replicas that exchange tokens. They form a unit, which runs at the pace of its
    slowest rank.
    """
    places, stages = ranks.places, job.plan.pp
    unit = units_of(job, places)
    count = int(unit.max()) + 1
    home = unit[places.replica] * stages + places.stage  # [W] unit and stage
    slow, product = np.zeros(count * stages), np.zeros(count * stages)
    np.maximum.at(slow, home, ranks.slow)
    np.maximum.at(product, home, ranks.slow * ranks.product)
    kinds = np.zeros(count * stages, np.int64)
    np.bitwise_or.at(kinds, home, 1 << ranks.kind)
    pauses: dict[int, tuple[tuple[float, float], ...]] = {}
    for rank, place, seconds in draw.pauses:
        at = int(home[rank])
        pauses[at] = tuple(sorted({*pauses.get(at, ()), (place, seconds)}))
    numbers = {pause_list: n for n, pause_list in enumerate(sorted(set(pauses.values())), start=1)}
    paused = np.zeros(count * stages)
    for at, pause_list in pauses.items():
        paused[at] = numbers[pause_list]
    batches = np.array(micro_batches(job, unequal))
    first = np.unique(unit, return_index=True)[1]
    columns = [a.reshape(count, stages) for a in (slow, product, kinds.astype(float), paused)]
    colour = np.unique(np.column_stack([*columns, batches[first]]), axis=0, return_inverse=True)[1].ravel()
    if unequal.jitter or unequal.documents or unequal.experts:  # equal units are drawn separately
        colour = colour * count + np.arange(count) % min(count, unequal.unfold)
    meets = {axis: _units(unit, joined_replicas(job, places, axis)) for axis in PARTIAL}
    apart = np.unique(np.column_stack([columns[2], batches[first]]), axis=0, return_inverse=True)[1].ravel()
    lag = slow.reshape(count, stages).sum(axis=1)
    colour = _limit_colours(_refine_colours(colour, meets), lag, columns[3].max(axis=1) > 0.0, apart, unequal.unfold)
    groups = [np.flatnonzero(colour == c) for c in np.unique(colour)]
    groups.sort(key=lambda units: (-len(units), int(units[0])))
    groups_of_equal = []
    for units in groups:
        rows = int(units[lag[units].argmax()]) * stages + np.arange(stages)
        paces = tuple(Pace(int(kinds[at]), float(slow[at]), float(product[at]), pauses.get(at, ())) for at in rows.tolist())
        inside = np.flatnonzero(np.isin(unit, units))
        members = job.plan.tp * job.plan.cp * int((unit == units[0]).sum())
        groups_of_equal.append(Replicas(tuple(inside.tolist()), paces, int(batches[inside[0]]), members, {}))
    number = np.zeros(count, np.int64)
    for n, units in enumerate(groups):
        number[units] = n
    return [replace(group, partners=_partners(n, number, meets, len(groups))) for n, group in enumerate(groups_of_equal)]


def _units(unit: Int64s, label: Int64s) -> Int64s:
    """[units] for each unit the smallest label in its connected component: units with replicas of the same label are connected."""
    count = int(unit.max()) + 1
    of = np.full(count, len(unit))
    np.minimum.at(of, unit, label)
    first = np.full(len(unit), count)  # for each label the first unit that has it
    np.minimum.at(first, label, unit)
    component = smallest_connected(unit, first[label], count)
    least = np.full(count, len(unit))
    np.minimum.at(least, component, of)
    return np.asarray(least[component], np.int64)


def _refine_colours(colour: Int64s, meets: dict[Axis, Int64s]) -> Int64s:
    """Splits colours until units of one colour meet the same colours on every axis."""
    while True:
        columns = [colour]
        for label in meets.values():
            met: dict[int, set[int]] = {}
            for at, c in zip(label.tolist(), colour.tolist(), strict=True):
                met.setdefault(at, set()).add(c)
            sets = {at: tuple(sorted(colours_met)) for at, colours_met in met.items()}
            numbers = {colours_met: n for n, colours_met in enumerate(sorted(set(sets.values())))}
            columns.append(np.array([numbers[sets[at]] for at in label.tolist()]))
        finer = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()
        if finer.max() == np.unique(colour).size - 1:
            return np.asarray(finer, np.int64)
        colour = np.asarray(finer, np.int64)


def _limit_colours(colour: Int64s, lag: np.ndarray, paused: np.ndarray, apart: Int64s, most: int) -> Int64s:
    """Merges colours to at most about `most`: the fastest units are merged, and take the pace of the slowest of them.

    By unit: `lag`: its slowness; `paused`: it pauses, and so is not merged; units with different numbers `apart` are never merged.
    """
    colours, first = np.unique(colour, return_index=True)
    if len(colours) <= most:
        return colour
    joined_to: dict[int, int] = {}
    target = colours.copy()
    for at in np.argsort(-lag[first], kind="stable")[most - 1 :].tolist():
        if not paused[first[at]]:
            target[at] = joined_to.setdefault(int(apart[first[at]]), int(colours[at]))
    return np.asarray(target[np.searchsorted(colours, colour)], np.int64)


def _partners(group: int, number: Int64s, meets: dict[Axis, Int64s], count: int) -> dict[Axis, tuple[int, ...]]:
    """Groups that `group` meets on each axis, directly or through other groups."""
    everyone = tuple(range(count))
    partners: dict[Axis, tuple[int, ...]] = {Axis.DP: everyone, Axis.WORLD: everyone}
    for axis, label in meets.items():
        labels = np.unique(label, return_inverse=True)[1]
        component = smallest_connected(number, count + labels, count + int(labels.max()) + 1)[:count]
        partners[axis] = tuple(np.flatnonzero(component == component[group]).tolist())
    return partners
