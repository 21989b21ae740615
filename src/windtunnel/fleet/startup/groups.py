"""`init_mesh`: creates the process groups of a mesh by their members only, without a barrier over all ranks.

With gloo a rank writes one value to the store and reads its peers' values in one call, for all of its groups
(`address_exchange.py`). Other backends exchange addresses at the first collective; their groups are created with
`new_group(use_local_synchronization=True)`, axis after axis. All ranks process the axes in the same order, so a rank that waits in
an axis waits only for ranks in the same or an earlier axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.fleet.startup.address_exchange import Gathering, SlotStore, StartupTimeout, exchange
from windtunnel.fleet.startup.layout import RankLayout, make_layout
from windtunnel.fleet.startup.operation_counts import World, peers

Group = Any
"""A torch.distributed.ProcessGroup."""
_starts = itertools.count()


@dataclass(frozen=True)
class ProcessMesh:
    """The groups of this rank. `groups` has one entry for each axis, and one for each of `also` under its axes joined by '_'."""

    layout: RankLayout
    rank: int
    groups: dict[str, Group]

    def group(self, axis: str) -> Group:
        """This rank's group of `axis`. UnknownName for an axis without a group."""
        if axis not in self.groups:
            raise UnknownName("axis", axis, tuple(self.groups))
        return self.groups[axis]

    def ranks(self, axis: str) -> tuple[int, ...]:
        """Global ranks of this rank's group of `axis`, ascending."""
        return tuple(dist.get_process_group_ranks(self.group(axis)))

    def group_name(self, axis: str) -> str:
        """The group's name in torch."""
        return str(self.group(axis).group_name)

    @property
    def coordinates(self) -> dict[str, int]:
        """Position of this rank on each axis."""
        return self.layout.coordinates(self.rank)

    def device_mesh(self, device_type: str = "cpu") -> DeviceMesh:
        """The same groups as torch's DeviceMesh, without further store operations. Its dimensions are `layout.names`."""
        layout = self.layout
        strides = tuple(layout.strides[name] for name in layout.names)
        ranks = torch.arange(layout.world, dtype=torch.int).as_strided(layout.shape, strides).clone()
        groups = [self.groups[name] for name in layout.names]
        if len(groups) == 1:
            return DeviceMesh.from_group(groups[0], device_type, mesh_dim_names=layout.names)
        return DeviceMesh.from_group(groups, device_type, mesh=ranks, mesh_dim_names=layout.names)


def init_mesh(
    names: Sequence[str],
    shape: Sequence[int],
    *,
    store: dist.Store,
    rank: int,
    backend: str = "gloo",
    order: str | Sequence[str] | None = None,
    also: Sequence[Sequence[str]] = (),
    world: World = "full",
    timeout: timedelta = timedelta(minutes=5),
) -> ProcessMesh:
    """Creates the default group and this rank's group of each axis; a drop-in for `init_process_group` and `new_group` of a mesh.

    Every rank calls it with the same arguments except `rank`; `store` is one of `open_store` or any other. `order`: axes, fastest
    first (`make_layout`). `also`: groups over several axes, as ("dp", "cp"). `world` "bare" leaves the default group without
    connections: `get_rank`, `new_group` and groups of the mesh work, collectives over all ranks do not; gloo only. If
    torch.distributed is initialised, its default group is kept.

    SpecError for an invalid mesh, and over gloo for a torch before 2.13; StartupTimeout with the ranks that did not start within
    `timeout`.
    """
    layout = make_layout(names, shape, order)
    layout.coordinates(rank)
    if dist.is_initialized() and dist.get_world_size() != layout.world:
        raise SpecError(
            "shape", str(layout), f"{dist.get_world_size()} ranks in all", "torch.distributed is initialised with as many."
        )
    axes = {"_".join(one): tuple(one) for one in [(name,) for name in layout.names] + list(also)}
    members = {label: layout.group(one, rank) for label, one in axes.items()}
    if str(backend) == "gloo" and dist.get_debug_level() != dist.DebugLevel.DETAIL:
        if not hasattr(c10d, "_register_pg_in_world"):
            raise SpecError("torch", torch.__version__, "2.13 or later", "Older ones register their groups in another way.")
        return ProcessMesh(layout, rank, _create_groups(layout, rank, members, store, list(also), world, timeout))
    if world == "bare":
        raise SpecError("world", world, "full", f"Backend {backend} connects its default group when it is first used.")
    if not dist.is_initialized():
        dist.init_process_group(backend, store=store, rank=rank, world_size=layout.world, timeout=timeout)
    groups = {}
    for label, ranks in members.items():
        one = dist.new_group(list(ranks), timeout, backend, use_local_synchronization=True, group_desc=f"mesh_{label}")
        groups[label] = dist.group.WORLD if one is None else one
    return ProcessMesh(layout, rank, groups)


def _create_groups(
    layout: RankLayout, rank: int, members: dict[str, tuple[int, ...]], store: dist.Store, also: list[Sequence[str]], world: World,
    timeout: timedelta,
) -> dict[str, Group]:  # fmt: skip
    """Creates gloo groups with one exchange. The default group is created in this thread, all others in threads of their own."""
    prefix, initialised = f"mesh{next(_starts)}", dist.is_initialized()
    store.set_timeout(timeout)
    connect = world == "full" and not initialised
    reuses_world = connect or (initialised and world == "full")  # a default group that an axis of all ranks can reuse
    new_groups = {label: ranks for label, ranks in members.items() if not (reuses_world and len(ranks) == layout.world)}
    peers_of = partial(peers, layout, world="full" if connect else "bare", also=tuple(map(tuple, also)))
    slots = [range(layout.world)] * connect + list(new_groups.values())
    gathering = Gathering(slots, lambda blob: exchange(store, prefix, rank, blob, peers_of))
    backends: dict[str, Any] = {}

    def create(slot: int, label: str, device: Any) -> None:
        try:
            backends[label] = _gloo(
                SlotStore(gathering, slot, dist.PrefixStore(f"{prefix}/{label}", store)), new_groups[label], rank, timeout, device
            )
        except BaseException as error:
            gathering.fail(error)
            errors.append(error)

    errors: list[BaseException] = []
    device = dist.ProcessGroupGloo.create_default_device()
    threads = [Thread(target=create, args=(connect + at, label, device), daemon=True) for at, label in enumerate(new_groups)]
    for thread in threads:
        thread.start()
    try:
        if connect:
            _default_group(SlotStore(gathering, 0, store), store, rank, layout.world, timeout)
    except BaseException as error:
        gathering.fail(error)
        errors.append(error)
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if isinstance(error, StartupTimeout)), errors[0])
    if not connect and not initialised:
        _bare_group(store, rank, layout.world)
    names = {label: f"{prefix}_{label}_{ranks[0]}" for label, ranks in new_groups.items()}
    groups = {label: _register_group(backends[label], store, new_groups[label], rank, names[label], label) for label in new_groups}
    return {label: groups.get(label, dist.group.WORLD) for label in members}


def _gloo(store: dist.Store, ranks: tuple[int, ...], rank: int, timeout: timedelta, device: Any) -> Any:
    """gloo's backend of a group. One listening socket and one loop thread serve all groups of a rank."""
    options = dist.ProcessGroupGloo._Options()
    options._devices, options._timeout = [device], timeout
    backend = dist.ProcessGroupGloo(store, ranks.index(rank), len(ranks), options)
    backend._set_sequence_number_for_group()
    return backend


def _default_group(gathered: dist.Store, store: dist.Store, rank: int, world: int, timeout: timedelta) -> None:
    """Creates torch's default group; later groups use `store` itself."""
    dist.init_process_group("gloo", store=gathered, rank=rank, world_size=world, timeout=timeout)
    default = dist.group.WORLD
    c10d._world.pg_map[default] = (c10d._world.pg_map[default][0], dist.PrefixStore(f"{default.group_name}/", store))


def _bare_group(store: dist.Store, rank: int, world: int) -> None:
    """Registers a default group that has rank, size and store but no connections."""
    name = c10d._process_group_name([], use_hashed_name=False)
    behind = dist.PrefixStore(f"{name}/", store)
    group = dist.ProcessGroup(behind, rank, world)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    group._set_group_name(name)
    group._set_group_desc("default_pg")
    config = str(c10d.BackendConfig(c10d.Backend("gloo")))
    c10d._register_pg_in_world(group, "gloo", behind, name, config, {one: one for one in range(world)}, add_to_default_tag=True)
    c10d._update_default_pg(group)


def _register_group(backend: Any, store: dist.Store, ranks: tuple[int, ...], rank: int, name: str, label: str) -> Group:
    """A ProcessGroup around `backend`, registered in torch.distributed as `_new_process_group_helper` of torch 2.13 does."""
    behind = dist.PrefixStore(f"{name}/", store)
    group = dist.ProcessGroup(behind, ranks.index(rank), len(ranks))
    kind = dist.ProcessGroup.BackendType.GLOO
    group._set_default_backend(kind)
    backend.options.global_ranks_in_group, backend.options.group_name = list(ranks), name
    config = c10d.BackendConfig(c10d.Backend("gloo"))
    for device in config.get_device_backend_map():
        group._register_backend(torch.device(device), kind, backend)
    group._set_group_name(name)
    group._set_group_desc(f"mesh_{label}")
    mapping = {one: at for at, one in enumerate(ranks)}
    c10d._register_pg_in_world(group, "gloo", behind, name, str(config), mapping, add_to_default_tag=True)
    return group
