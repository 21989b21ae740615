"""A cluster whose accelerators are joined along dimensions: its dimensions as numbers, and the part of it that a job gets.

Torus, mesh and ndim (`spec.machine.GRIDS`) have no servers and leaves between accelerators; each dimension is a ring, a
line, fully connected, or a switch. A link carries its line rate times the fabric's `efficiency`.

Axes of a plan on the dimensions of a machine, as JAX's `mesh_utils.create_device_mesh` maps them: contiguous parts of a torus.

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
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.ndim import NDim
from windtunnel.network.fabrics.parameters import per_dimension
from windtunnel.network.fabrics.registry import parse_builder
from windtunnel.network.fabrics.torus import Torus, joins
from windtunnel.spec.machine import Cluster

if TYPE_CHECKING:
    from windtunnel.spec.job import Job


GridKind = Literal["ring", "line", "fully_connected", "switch"]
NAMES = "xyzw"
"""Of the first dimensions; further ones have numbers."""
_KINDS: dict[str, GridKind] = {"ring": "ring", "fully_connected": "fully_connected", "switch": "switch"}
BUILDER, SLICE, GPUS = "cluster.fabric.builder", "cluster.fabric.slice", "cluster.gpus"


@dataclass(frozen=True)
class GridDimension:
    """One dimension: `rate` B/s each way that a cable carries, `latency` seconds of a cable."""

    name: str
    kind: GridKind
    size: int
    rate: float
    latency: float


@dataclass(frozen=True)
class GridMachine:
    """Accelerators along dimensions, the first one fastest in their numbers."""

    builder: Torus | NDim
    dimensions: tuple[GridDimension, ...]
    efficiency: float
    medium: str
    """What carries data: "ICI", or "-" where it has no name."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Accelerators along each dimension."""
        return tuple(dimension.size for dimension in self.dimensions)

    @property
    def shape(self) -> str:
        """The sizes as text, such as 4x8x8."""
        return "x".join(map(str, self.sizes))

    @property
    def accelerators(self) -> int:
        """All of them."""
        return math.prod(self.sizes)

    def graph(self) -> Graph:
        """The link graph, at the rates that links carry."""
        graph = self.builder.build()
        return replace(graph, link_rate=graph.link_rate * self.efficiency)


def grid_of(cluster: Cluster, gpus: int | None = None) -> GridMachine | None:
    """The machine under a job on `gpus` accelerators (left out: the cluster's), None for a cluster that is no grid.

    SpecError for a machine that has another number of accelerators, or no part with as many.
    """
    fabric = cluster.fabric
    if not fabric.is_grid:
        return None
    medium = "ICI" if fabric.kind == "ici" else "-"
    asked = cluster.gpus if gpus is None else gpus
    return _grid(fabric.builder or "", fabric.slices, fabric.slice, fabric.efficiency, medium, asked, cluster.gpus)


@lru_cache(maxsize=256)
def _grid(text: str, slices: bool, part: str | None, efficiency: float, medium: str, gpus: int, whole: int) -> GridMachine:
    builder = _read_builder(text)
    if part is not None and not slices:
        raise SpecError(SLICE, part, "a fabric with slices = true", "Write the sizes in cluster.fabric.builder.")
    if slices:
        if not isinstance(builder, Torus):
            raise SpecError("cluster.fabric.slices", True, "false for ndim: a torus or mesh has slices")
        builder = replace(builder, sizes=_read_slice(part, builder, gpus) if part is not None else slice_of(builder, gpus))
    machine = GridMachine(builder, _dimensions(builder, efficiency), efficiency, medium)
    wanted = gpus if slices else max(gpus, whole)
    if machine.accelerators != wanted:
        raise SpecError(
            SLICE if part is not None else BUILDER,
            machine.shape,
            f"sizes whose product is the {wanted} GPUs of the job",
            f"{machine.shape} has {machine.accelerators}. Set cluster.gpus={machine.accelerators}, or sizes such as "
            f"{_show_nearest(wanted, len(machine.sizes))}.",
        )
    return machine


def _read_builder(text: str) -> Torus | NDim:
    try:
        builder = parse_builder(text)
    except SpecError as error:
        raise SpecError(f"{BUILDER} {error.path.removeprefix('--fabric ')}", error.got, error.allowed, error.hint) from None
    if not isinstance(builder, (Torus, NDim)):
        raise SpecError(BUILDER, text, "a torus, mesh or ndim")
    return builder


def machine_under(cluster: Cluster, gpus: int | None = None) -> GridMachine:
    """As `grid_of`, of a cluster that is a grid; SpecError for others."""
    machine = grid_of(cluster, gpus)
    if machine is None:
        raise SpecError(BUILDER, cluster.fabric.builder or "none", "a torus, mesh or ndim")
    return machine


def _dimensions(builder: Torus | NDim, efficiency: float) -> tuple[GridDimension, ...]:
    count = len(builder.sizes)
    rates = per_dimension(builder.link, count, f"{BUILDER} {builder.NAME}.link")
    latencies = per_dimension(builder.latency, count, f"{BUILDER} {builder.NAME}.latency")
    kinds: list[GridKind] = []
    if isinstance(builder, NDim):
        for kind, size in zip(builder.kinds, builder.sizes, strict=True):
            kinds.append(_KINDS[kind] if kind != "ring" or joins(size) else "line")
    else:
        kinds = ["ring" if ring else "line" for ring in builder.rings]
    names = [NAMES[at] if at < len(NAMES) else str(at) for at in range(count)]
    return tuple(
        GridDimension(name, kind, size, rate * efficiency, latency)
        for name, kind, size, rate, latency in zip(names, kinds, builder.sizes, rates, latencies, strict=True)
    )


def _read_slice(text: str, pod: Torus, gpus: int) -> tuple[int, ...]:
    """Sizes of a slice as its user writes them."""
    try:
        sizes = tuple(int(one) for one in text.split("x"))
    except ValueError:
        sizes = ()
    if len(sizes) != len(pod.sizes) or min(sizes, default=0) < 1 or not _has_room(sizes, pod.sizes):
        shape = "x".join(map(str, pod.sizes))
        raise SpecError(
            SLICE, text, f"{len(pod.sizes)} sizes such as {_show_nearest(gpus, len(pod.sizes))}, inside the {shape} of the pod"
        )
    return sizes


def slice_of(pod: Torus, gpus: int) -> tuple[int, ...]:
    """Sizes of the part of a pod with `gpus` accelerators that is nearest to a cube; of whole cubes where there are such parts, as
    Google's documentation lists v5p slices. SpecError if no part has as many."""
    found = [sizes for sizes in factors(gpus, len(pod.sizes)) if list(sizes) == sorted(sizes) and _has_room(sizes, pod.sizes)]
    whole = [sizes for sizes in found if all(size % pod.cube == 0 for size in sizes)]
    if not found:
        most = math.prod(pod.sizes)
        shape = "x".join(map(str, pod.sizes))
        raise SpecError(
            GPUS,
            gpus,
            f"at most the pod's {most}" if gpus > most else f"a number with sizes inside the pod's {shape}",
            "Several slices over the data-centre network: set cluster.fabric=ethernet." if gpus > most else "",
        )
    return min(whole or found, key=lambda sizes: (sum(sizes), sizes))


def _has_room(sizes: tuple[int, ...], most: tuple[int, ...]) -> bool:
    return all(one <= other for one, other in zip(sorted(sizes), sorted(most), strict=True))


def factors(number: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to write `number` as a product of so many ordered parts."""
    if parts == 1:
        return [(number,)]
    divisors = [d for d in range(1, number + 1) if number % d == 0] if number < 4096 else _divisors(number)
    return [(first, *rest) for first in divisors for rest in factors(number // first, parts - 1)]


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _show_nearest(gpus: int, count: int) -> str:
    """Sizes with that product that are nearest to a cube."""
    return "x".join(map(str, min(factors(gpus, count), key=lambda sizes: (sum(sizes), sizes))))


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
