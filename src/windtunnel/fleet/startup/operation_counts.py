"""Number of store operations for starting a mesh, in closed form.

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
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from windtunnel.base.errors import UnknownName
from windtunnel.fleet.startup.layout import RankLayout

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
