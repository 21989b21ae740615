"""Measured seconds over expected ones: by kernel class, by axis, of the host, of single ranks and of single groups."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.network.groups.shape import members
from windtunnel.runs.expected import first_ranks
from windtunnel.runs.observed import CallKind, Observed
from windtunnel.spec import Job
from windtunnel.workload import Axis

SMALL = 0.002
"""Share of the step below which a class or an axis is too small for a factor of its own."""

STANDS_OUT = 1.05
"""A rank (or a group) is slow where its factor is this much above the median of the others, and clearly beyond their spread."""

_SIZE_TOLERANCE = 0.02
"""Relative difference of the bytes of calls that count as the same call."""


@dataclass(frozen=True)
class Factor:
    """Measured over expected seconds at a path of `spec.calibration` (kernels.gemm, calls.dp, host).

    `expected_s`: seconds of a step that it holds for; `error`: standard error of the factor; `samples`: ranks or calls behind it.
    """

    path: str
    value: float
    error: float
    expected_s: float
    samples: int


@dataclass(frozen=True)
class Odd:
    """A rank, or a group of ranks, that is slower than its equals by a factor: `kind` is "rank" or "group"."""

    kind: str
    ranks: tuple[int, ...]
    factor: float
    axis: str = ""


@dataclass(frozen=True)
class Factors:
    """What a run says of the prediction of its job. `missing`: expected calls that the run does not show; `extra`: calls of the
    run that are not expected (seconds of a step)."""

    factors: tuple[Factor, ...]
    odd: tuple[Odd, ...]
    missing: tuple[tuple[CallKind, float], ...]
    extra: tuple[tuple[CallKind, float], ...]


def factors_of(measured: Observed, expected: Observed, job: Job) -> Factors:
    """Factors of what was measured on what is expected of the job's pipeline stages."""
    stage = stages_of(measured.ranks, job)
    base = {int(rank): index for index, rank in enumerate(expected.ranks)}
    order = np.array([base.get(int(first), 0) for first in first_ranks(job)], np.int64)
    step = float(np.median(expected.step)) if len(expected.step) else 0.0
    speed = _speeds(measured, expected, stage, order)
    odd_ranks = _odd_ranks(measured.ranks, speed)
    good = np.isin(measured.ranks, [rank for one in odd_ranks for rank in one.ranks], invert=True)
    kernels = [
        factor
        for name, seconds in expected.kernels.items()
        if name in measured.kernels and seconds.max(initial=0.0) > SMALL * step
        for factor in [_ratio(f"kernels.{name}", measured.kernels[name][good], seconds[order][stage][good])]
        if factor is not None
    ]
    calls, odd_groups, missing, extra = _calls(measured, expected, step)
    host = _ratio("host", measured.launch[good], expected.launch[order][stage][good])
    all_factors = (*kernels, *calls, *([] if host is None else [host]))
    return Factors(all_factors, (*odd_ranks, *odd_groups), missing, extra)


def stages_of(ranks: Int64s, job: Job) -> Int64s:
    """The pipeline stage of each rank."""
    if job.plan.pp == 1:
        return np.zeros(len(ranks), np.int64)
    owner = np.zeros(job.cluster.gpus, np.int64)
    for stage in range(job.plan.pp):
        owner[members(job, Axis.PP, stage)[:, 0]] = stage
    return owner[np.clip(ranks, 0, len(owner) - 1)]


def _speeds(measured: Observed, expected: Observed, stage: Int64s, order: Int64s) -> Floats:
    """[R] kernel seconds of each rank over those expected of its stage: the mean over classes, weighted by their seconds."""
    total = expected.compute[order][stage]
    return np.asarray(measured.compute / np.where(total > 0, total, np.nan))


def _odd_ranks(ranks: Int64s, speed: Floats) -> tuple[Odd, ...]:
    """Ranks that compute longer than the median rank."""
    if len(ranks) < 3:
        return ()
    middle = float(np.nanmedian(speed))
    spread = 1.4826 * float(np.nanmedian(np.abs(speed - middle)))
    slow = np.flatnonzero(speed > middle * STANDS_OUT + 4.0 * spread)
    return tuple(Odd("rank", (int(ranks[i]),), float(speed[i] / middle)) for i in slow[np.argsort(-speed[slow])])


def _ratio(path: str, measured: Floats, expected: Floats) -> Factor | None:
    """The median over ranks of measured over expected."""
    known = (expected > 0) & (measured > 0)
    if not known.any():
        return None
    ratios = measured[known] / expected[known]
    error = float(np.std(ratios) / math.sqrt(len(ratios))) if len(ratios) > 1 else float("nan")
    return Factor(path, float(np.median(ratios)), error, float(np.median(expected[known])), int(known.sum()))


_CallResults = tuple[list[Factor], tuple[Odd, ...], tuple[tuple[CallKind, float], ...], tuple[tuple[CallKind, float], ...]]


def _calls(measured: Observed, expected: Observed, step: float) -> _CallResults:
    """A factor for each axis from the calls that both sides have; groups of an axis that are slower than the others."""
    factors, odd = [], list[Odd]()
    pairs: dict[CallKind, CallKind] = {}
    for key in expected.calls:
        partner = nearest_call(key, measured.calls)
        if partner is not None:
            pairs[key] = partner
    for axis in dict.fromkeys(key.axis for key in pairs):
        mine = [(measured.calls[other], expected.calls[key]) for key, other in pairs.items() if key.axis == axis]
        weight = np.array([here[0] * here[1] for _, here in mine])
        if weight.sum() <= SMALL * step:
            continue
        ratio = np.array([there[0] / here[0] for there, here in mine])
        value = float((weight * ratio).sum() / weight.sum())
        speeds = _group_speeds(axis, measured)
        slow = _odd_groups(axis, speeds)
        odd += slow
        if slow:  # the others say how the axis runs
            value /= _share(speeds)
        variance = (weight * (ratio - value) ** 2).sum() / weight.sum() / len(ratio)
        error = math.sqrt(variance) if len(ratio) > 1 else math.nan
        factors.append(Factor(f"calls.{axis}", value, error, float(weight.sum()), len(mine)))
    missing = _unpaired_calls(expected, set(pairs), SMALL * step)
    return factors, tuple(odd), missing, _unpaired_calls(measured, set(pairs.values()), SMALL * step)


def _unpaired_calls(side: Observed, paired: set[CallKind], least: float) -> tuple[tuple[CallKind, float], ...]:
    """Calls that the other side does not have, with their seconds in a step, the longest first."""
    listed = [(key, each * count) for key, (each, count) in side.calls.items() if key not in paired and each * count > least]
    return tuple(sorted(listed, key=lambda entry: -entry[1]))


def nearest_call(key: CallKind, calls: Iterable[CallKind]) -> CallKind | None:
    """The call of the same kind and axis whose bytes are nearest, within 2 %; None where there is none."""
    same = [other for other in calls if other.comm is key.comm and other.axis == key.axis]
    near = [other for other in same if abs(other.bytes - key.bytes) <= _SIZE_TOLERANCE * max(key.bytes, 1.0)]
    return min(near, key=lambda other: abs(other.bytes - key.bytes), default=None)


def _group_speeds(axis: str, measured: Observed) -> dict[tuple[int, ...], float]:
    """Seconds of each group's calls over the fastest group's, for the calls that all groups of an axis make."""
    groups = measured.groups.get(axis, {})
    shared = set.intersection(*(set(keys) for keys in groups.values())) if groups else set()
    if len(groups) < 2 or not shared:
        return {}
    best = {key: min(keys[key] for keys in groups.values()) for key in shared}
    base = sum(best.values())
    return {ranks: sum(keys[key] for key in shared) / base for ranks, keys in groups.items()} if base > 0 else {}


def _odd_groups(axis: str, speeds: dict[tuple[int, ...], float]) -> list[Odd]:
    """Groups whose calls take longer than those of the usual group."""
    if len(speeds) < 2:
        return []
    usual = _usual_speed(speeds)
    slow = {ranks: value / usual for ranks, value in speeds.items() if value > usual * (1.0 + 3.0 * (STANDS_OUT - 1.0))}
    return [Odd("group", ranks, value, axis) for ranks, value in sorted(slow.items(), key=lambda item: -item[1])]


def _share(speeds: dict[tuple[int, ...], float]) -> float:
    """Seconds of all groups over those of the usual group: what slow groups add to the axis."""
    usual = _usual_speed(speeds)
    return float(np.quantile(list(speeds.values()), 0.2)) / usual if usual > 0 else 1.0


def _usual_speed(speeds: dict[tuple[int, ...], float]) -> float:
    """The median group; the faster one of two."""
    return float(np.median(list(speeds.values()))) if len(speeds) > 2 else min(speeds.values())
