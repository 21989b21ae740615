"""Axes of a mesh, and the ranks of each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from windtunnel.base.errors import PlanError, SpecError, UnknownName


@dataclass(frozen=True)
class RankLayout:
    """A mesh of ranks 0 … world - 1.

    `names` and `shape` (ranks of each axis) are the axes as the user lists them. `fastest` lists the axes from the one whose
    neighbours are consecutive ranks to the slowest one; by default the last of `names` is the fastest, as in a torch `DeviceMesh`.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    fastest: tuple[str, ...]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Ranks of each axis."""
        return dict(zip(self.names, self.shape, strict=True))

    @cached_property
    def strides(self) -> dict[str, int]:
        """Difference in rank between two neighbours of each axis."""
        strides, step = {}, 1
        for name in self.fastest:
            strides[name] = step
            step *= self.sizes[name]
        return strides

    @property
    def world(self) -> int:
        """Number of ranks."""
        return prod(self.shape)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Position of `rank` on each axis. SpecError for a rank outside of the mesh."""
        if not 0 <= rank < self.world:
            raise SpecError("rank", rank, f"0 to {self.world - 1}", f"The mesh {self} has {self.world} ranks.")
        return {name: rank // self.strides[name] % self.sizes[name] for name in self.names}

    def group(self, axes: Sequence[str], rank: int) -> tuple[int, ...]:
        """Ranks, ascending, that differ from `rank` on `axes` only, including `rank`. UnknownName for an unknown axis."""
        for axis in axes:
            if axis not in self.sizes:
                raise UnknownName("axis", axis, self.names)
        at = self.coordinates(rank)
        ranks = [rank - sum(at[axis] * self.strides[axis] for axis in axes)]
        for axis in axes:
            ranks = [base + step * self.strides[axis] for base in ranks for step in range(self.sizes[axis])]
        return tuple(sorted(ranks))

    def groups(self, axes: Sequence[str]) -> list[tuple[int, ...]]:
        """All groups over `axes`, each once, ordered by their lowest rank."""
        return sorted({self.group(axes, rank) for rank in range(self.world)})

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.sizes.items())


def make_layout(names: Sequence[str], shape: Sequence[int], order: str | Sequence[str] | None = None) -> RankLayout:
    """The mesh of axes `names` with `shape` ranks each.

    `order` lists all axes, fastest first, like Megatron's rank order ("tp-cp-dp-pp"). None: the last name is the fastest. SpecError
    for sizes below 1 and repeated or missing names.
    """
    names, shape = tuple(names), tuple(shape)
    if not names or len(names) != len(shape):
        raise SpecError(
            "shape",
            list(shape),
            f"one size for each of the {len(names)} axes",
            "Example: names=('dp', 'pp', 'tp'), shape=(8, 4, 2).",
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SpecError("names", twice, "each axis once")
    wrong = next((size for size in shape if not isinstance(size, int) or size < 1), None)
    if wrong is not None:
        raise SpecError("shape", wrong, "whole numbers from 1 on")
    fastest = tuple(reversed(names)) if order is None else tuple(order.split("-") if isinstance(order, str) else order)
    if sorted(fastest) != sorted(names):
        example = "-".join(reversed(names))
        raise PlanError(
            "order", "-".join(fastest), f"each of {', '.join(names)} once, joined by '-'", f"Example: {example}, fastest first."
        )
    return RankLayout(names, shape, fastest)


def parse_mesh(text: str, order: str | None = None) -> RankLayout:
    """Parses `dp=8,pp=4,tp=2`. SpecError for anything else."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        if not name or not equals or not number.strip().isdigit():
            raise SpecError("--mesh", text, "axes with sizes, as in dp=8,pp=4,tp=2")
        if name in sizes:
            raise SpecError("--mesh", text, "each axis once", f"{name} is there twice.")
        sizes[name] = int(number)
    return layout_of(sizes, order)


def layout_of(sizes: Mapping[str, int], order: str | None = None) -> RankLayout:
    """`make_layout` from a mapping of axis to size; the last one is the fastest unless `order` is given."""
    return make_layout(list(sizes), list(sizes.values()), order)
