"""Axes of a plan on the dimensions of a machine, as JAX's `mesh_utils.create_device_mesh` maps them: contiguous parts of a torus.

Axes choose in the placement's order, the innermost first, as it communicates most. An axis takes whole dimensions where their
product is its size, the more of them the better (JAX prefers them so). If there are none, it takes parts of dimensions: those over
which it has most bandwidth, and of equal ones those that cut fewest dimensions. A part that is taken first is contiguous; what is
left of the dimension is strided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.grids.machine import GridDimension, GridMachine, factors

if TYPE_CHECKING:
    from windtunnel.spec.job import Job

Axes = tuple[tuple[str, int], ...]
"""(name, ranks) of each axis of a plan, the innermost first."""


class Digit(NamedTuple):
    """A part of a dimension that an axis takes: `size` places, each `stride` accelerators from the next."""

    dimension: int
    size: int
    stride: int


def axes_of(job: Job) -> Axes:
    """The axes of a job's plan, as `plan.placement` orders them. Data-parallel ranks are cut where experts and sharding groups cut
    them, so that these are contiguous too."""
    sizes = {"tp": job.plan.tp, "cp": job.plan.cp, "dp": job.dp, "pp": job.plan.pp}
    named = tuple((name, sizes[name]) for name in job.plan.placement if name in sizes)
    return tuple(part for axis in named for part in (_cut(job) if axis[0] == "dp" else (axis,)))


def _cut(job: Job) -> Axes:
    """The parts of the data-parallel axis, the innermost first."""
    plan, inner = job.plan, job.plan.tp * job.plan.cp
    ends = [plan.ep * plan.etp / inner, job.shard_ranks / plan.cp]
    parts, before = [], 1
    for end in sorted(int(end) for end in ends if end >= 1 and end == int(end)):
        if end > before and end % before == 0 and job.dp % end == 0:
            parts.append(("dp", end // before))
            before = end
    return (*parts, ("dp", job.dp // before))


@lru_cache(maxsize=256)
def map_axes(machine: GridMachine, axes: Axes) -> tuple[tuple[str, tuple[Digit, ...]], ...]:
    """The digits of each axis, its first one fastest in the axis' numbers. SpecError if accelerators are not as many as ranks."""
    ranks = math.prod(size for _, size in axes)
    if ranks != machine.accelerators:
        plan = ", ".join(f"{name} = {size}" for name, size in axes)
        raise SpecError(
            "cluster.fabric.builder", machine.shape, f"sizes whose product is {ranks}, as the plan has ranks ({plan})",
            f"{machine.shape} has {machine.accelerators} accelerators.",
        )  # fmt: skip
    taken = [1] * len(machine.sizes)
    mapped = []
    for name, size in axes:
        parts = _take_whole(machine.sizes, taken, size) or _take_parts(machine.dimensions, taken, size)
        mapped.append((name, tuple(Digit(at, part, taken[at]) for at, part in enumerate(parts) if part > 1)))
        taken = [before * part for before, part in zip(taken, parts, strict=True)]
    return tuple(mapped)


def _take_whole(sizes: Sequence[int], taken: Sequence[int], size: int) -> tuple[int, ...] | None:
    """Dimensions that nobody has and whose product is `size`, as many as possible; None if there are none."""
    free = [at for at, before in enumerate(taken) if before == 1 and sizes[at] > 1]
    for count in range(len(free), 0, -1):
        for chosen in combinations(free, count):
            if math.prod(sizes[at] for at in chosen) == size:
                return tuple(sizes[at] if at in chosen else 1 for at in range(len(sizes)))
    return None


def _take_parts(dimensions: Sequence[GridDimension], taken: Sequence[int], size: int) -> tuple[int, ...]:
    """Parts of dimensions whose product is `size`. There are always some: all that is left is a multiple of it."""

    def bandwidth(parts: tuple[int, ...]) -> float:
        return sum(_rate_of(dimensions[at], part, taken[at]) for at, part in enumerate(parts) if part > 1)

    def cuts(parts: tuple[int, ...]) -> int:
        return sum(1 for at, part in enumerate(parts) if part > 1 and part * taken[at] < dimensions[at].size)

    fitting = [
        parts
        for parts in factors(size, len(dimensions))
        if all(dimensions[at].size // taken[at] % part == 0 for at, part in enumerate(parts))
    ]
    return min(fitting, key=lambda parts: (-bandwidth(parts), cuts(parts), tuple(-part for part in parts)))


def _rate_of(dimension: GridDimension, size: int, stride: int) -> float:
    """B/s of an accelerator out of a part of a dimension."""
    if dimension.kind == "fully_connected":
        return dimension.rate * (size - 1)
    if dimension.kind == "switch":
        return dimension.rate
    ring = dimension.kind == "ring" and size * stride == dimension.size
    return dimension.rate * (2 if ring else 1) / stride


def points_of(machine: GridMachine, axes: Axes) -> Int64s:
    """[ranks, dimensions] place of each rank, ranks numbered with the innermost axis fastest; without axes of accelerators in
    order."""
    if not axes:
        return np.stack(np.unravel_index(np.arange(machine.accelerators), machine.sizes, order="F"), axis=1).astype(np.int64)
    rank = np.arange(machine.accelerators)
    points = np.zeros((len(rank), len(machine.sizes)), np.int64)
    for (_, size), (_, digits) in zip(axes, map_axes(machine, axes), strict=True):
        place, rank = rank % size, rank // size
        for digit in digits:
            points[:, digit.dimension] += place % digit.size * digit.stride
            place //= digit.size
    return points


def number_points(machine: GridMachine, points: Int64s) -> Int64s:
    """[...] the accelerator's number of each place [..., dimensions]."""
    strides = np.cumprod([1, *machine.sizes[:-1]])
    numbers: Int64s = (points * strides).sum(axis=-1)
    return numbers
