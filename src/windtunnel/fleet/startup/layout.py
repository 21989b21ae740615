"""Axes of a mesh, and the ranks of each group.

Number of store operations for starting a mesh, in closed form.

An operation is one call of a method of `torch.distributed.Store` by one rank, for any number of keys. Keys are counted separately,
so that a read of many keys is not taken for a small one. Verified against real runs in tests/pytorch/test_fleet_startup_groups.py.

Torch's own path (torch 2.13, read in `distributed_c10d.py` and counted): a gloo group of n ranks costs each of them 1 set, n waits
and n gets, including its own address: n·(2n + 1) per group. `init_device_mesh` calls `new_group` for every group on every rank, but
only members use the store. With TORCH_DIST_INIT_BARRIER=1 every call on every rank adds a barrier of two adds and a wait over the
world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Literal

from windtunnel.base.dataclasses import dataclass, field
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


World = Literal["full", "bare"]
STORES = ("tcp", "redis", "hierarchical")
"""Names of stores; `store.py` opens them."""


@dataclass
class Operations:
    """Calls of a store by kind, number of keys, and bytes of values written and read (0 if unknown)."""

    calls: Counter[str] = field(default_factory=Counter)
    keys: int = 0
    bytes: int = 0

    @property
    def total(self) -> int:
        """All calls."""
        return self.calls.total()

    def add(self, kind: str, calls: int = 1, keys: int | None = None, size: int = 0) -> None:
        """Counts `calls` of `kind` with `keys` keys (one each by default) and `size` bytes of values."""
        if calls:
            self.calls[kind] += calls
            self.keys += calls if keys is None else keys
            self.bytes += size

    def table(self) -> dict[str, Any]:
        """Plain data for JSON; `Operations.of` reads it."""
        return {"calls": dict(self.calls), "keys": self.keys, "bytes": self.bytes}

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Operations:
        """Reads what `table` returned."""
        return cls(Counter(table["calls"]), table["keys"], table["bytes"])

    def __add__(self, other: Operations) -> Operations:
        return Operations(self.calls + other.calls, self.keys + other.keys, self.bytes + other.bytes)


@dataclass(frozen=True)
class StartCounts:
    """Operations for starting a mesh: on the store that all ranks share, and on all nodes' local stores together."""

    shared: Operations
    local: Operations = field(default_factory=Operations)

    @property
    def total(self) -> int:
        """Calls of both."""
        return self.shared.total + self.local.total


def torch_counts(layout: RankLayout, barrier: bool = False) -> StartCounts:
    """`init_process_group("gloo")` and `init_device_mesh` of torch 2.13 over one store. `barrier`: with
    TORCH_DIST_INIT_BARRIER=1.
    """
    made, world = Operations(), layout.world
    _gloo_group(made, world, 1)
    calls = 1
    for size in layout.shape:
        if size != world:  # an axis of all ranks reuses the default group
            _gloo_group(made, size, world // size)
            calls += world // size
    if barrier:
        made.add("add", 2 * world * calls)
        made.add("wait", world * calls)
        made.add("set", calls)  # at least: two ranks that arrive together may both write it
    return StartCounts(made)


def _gloo_group(made: Operations, ranks: int, groups: int) -> None:
    made.add("set", ranks * groups, size=ranks * groups * _value_bytes(ranks))
    made.add("wait", ranks * ranks * groups)
    made.add("get", ranks * ranks * groups, size=ranks * ranks * groups * _value_bytes(ranks))


def ordered_counts(
    layout: RankLayout, store: str = "tcp", world: World = "full", ranks_per_node: int = 8, also: Sequence[Sequence[str]] = ()
) -> StartCounts:
    """`init_mesh` over gloo: a rank writes one value and reads everything that it needs in one call.

    `world` "full" includes the default group over all ranks; "bare" leaves it without connections. `also`: groups over several
    axes. UnknownName for a store that is not in STORES.
    """
    if store not in STORES:
        raise UnknownName("store", store, STORES)
    shared, size = Operations(), _blob_bytes(layout, world, also)
    if store != "hierarchical":
        read = (
            [layout.world - 1] * layout.world
            if world == "full"
            else [len(peers(layout, rank, world, also)) for rank in range(layout.world)]
        )
        shared.add("set", layout.world, size=layout.world * size)
        shared.add("multi_get", sum(1 for one in read if one), sum(read), sum(read) * size)
        return StartCounts(shared)
    local, nodes = Operations(), -(-layout.world // ranks_per_node)
    for node in range(nodes):
        members = range(node * ranks_per_node, min((node + 1) * ranks_per_node, layout.world))
        if world == "full":
            needed, reached = layout.world, nodes - 1
        else:
            ranks = {peer for member in members for peer in peers(layout, member, world, also)}
            needed, reached = len(ranks), len({peer // ranks_per_node for peer in ranks} - {node})
        shared.add("set", 1, size=len(members) * size)
        shared.add("multi_get", 1 if reached else 0, reached, reached * ranks_per_node * size)
        if len(members) > 1:
            others = len(members) - 1
            local.add("set", others + 1, size=(others + needed) * size)
            local.add("multi_get", 1, others, others * size)
            local.add("get", others, size=others * needed * size)
    return StartCounts(shared, local)


def _value_bytes(ranks: int) -> int:
    """Bytes that gloo writes for a rank of a group: host name, address, 8 bytes per peer. Measured; a longer host name adds to
    it.
    """
    return 154 + 8 * ranks


def _blob_bytes(layout: RankLayout, world: World, also: Sequence[Sequence[str]]) -> int:
    """Bytes that a rank publishes with `init_mesh`: the values of all of its groups, each with its key and two headers."""
    sizes = list(layout.shape) + [prod(layout.sizes[axis] for axis in one) for one in also]
    if world == "full":
        sizes = [layout.world] + [size for size in sizes if size != layout.world]
    return sum(_value_bytes(size) + 16 for size in sizes)


def peers(layout: RankLayout, rank: int, world: World, also: Sequence[Sequence[str]] = ()) -> tuple[int, ...]:
    """Ranks, ascending, whose addresses `rank` needs."""
    if world == "full":
        return tuple(other for other in range(layout.world) if other != rank)
    axes = [(name,) for name in layout.names] + [tuple(one) for one in also]
    return tuple(sorted({other for one in axes for other in layout.group(one, rank)} - {rank}))


def connections(layout: RankLayout, path: str, world: World = "full") -> int:
    """Number of gloo connection endpoints of all ranks together: n·(n - 1) per group. Torch's path always connects the whole
    world.
    """
    ends = layout.world * (layout.world - 1) if path == "torch" or world == "full" else 0
    for size in layout.shape:
        if size != layout.world or not ends:
            ends += layout.world * (size - 1)
    return ends


def memberships(layout: RankLayout, path: str, world: World = "full") -> int:
    """Number of groups that ranks create, summed over ranks."""
    default = path == "torch" or world == "full"
    return layout.world * (default + sum(1 for size in layout.shape if size != layout.world or not default))
