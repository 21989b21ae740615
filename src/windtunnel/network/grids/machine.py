"""A cluster whose accelerators are joined along dimensions: its dimensions as numbers, and the part of it that a job gets.

Torus, mesh and ndim (`spec.machine.cluster.GRIDS`) have no servers and leaves between accelerators; each dimension is a ring, a
line, fully connected, or a switch. A link carries its line rate times the fabric's `efficiency`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.ndim import NDim
from windtunnel.network.fabrics.parameters import per_dimension
from windtunnel.network.fabrics.registry import parse_builder
from windtunnel.network.fabrics.torus import Torus, joins
from windtunnel.spec.machine.cluster import Cluster

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


__all__ = ["GridDimension", "GridKind", "GridMachine", "factors", "grid_of", "machine_under", "slice_of"]
