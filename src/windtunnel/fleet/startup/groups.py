"""`init_mesh`: creates the process groups of a mesh by their members only, without a barrier over all ranks.

With gloo a rank writes one value to the store and reads its peers' values in one call, for all of its groups
(`address_exchange.py`). Other backends exchange addresses at the first collective; their groups are created with
`new_group(use_local_synchronization=True)`, axis after axis. All ranks process the axes in the same order, so a rank that waits in
an axis waits only for ranks in the same or an earlier axis.

A single exchange of addresses for all groups of a rank.

While a group is created, gloo writes a rank's address and reads those of all others, one group after another. Here the groups of a
rank are created in threads, each over a `SlotStore`. Their values are collected until all groups have written. Then the rank
publishes everything as one value, reads its peers' values in one call, and each group finds its addresses in memory. A rank
publishes before it waits for anybody, and waits once, so no order of ranks or groups can cause a deadlock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from struct import Struct
from threading import Condition, Thread
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName, WindtunnelError
from windtunnel.fleet.startup.layout import RankLayout, World, make_layout, peers
from windtunnel.fleet.startup.store import NodeStore

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


_SLOT = Struct("<HI")


class StartupTimeout(WindtunnelError):
    """Ranks that did not publish their addresses in time; `missing` lists them."""

    def __init__(self, missing: Sequence[int], seconds: float, waited_for: str) -> None:
        self.missing = tuple(missing)
        shown = ", ".join(map(str, self.missing[:16])) + (", …" if len(self.missing) > 16 else "")
        super().__init__(f"after {seconds:g} s, {len(self.missing)} {waited_for} did not start: {shown}. Look at their logs first.")


def exchange(store: dist.Store, prefix: str, rank: int, blob: bytes, peers_of: Callable[[int], Iterable[int]]) -> dict[int, bytes]:
    """Publishes `blob` for `rank` and returns the blobs of `peers_of(rank)`, by rank. StartupTimeout lists the missing ranks."""
    if isinstance(store, NodeStore):
        return store.exchange(prefix, blob, peers_of)
    store.set(f"{prefix}/{rank}", blob)
    peers = sorted(peers_of(rank))
    if not peers:
        return {}
    keys = [f"{prefix}/{peer}" for peer in peers]
    try:
        return dict(zip(peers, store.multi_get(keys), strict=True))
    except dist.DistStoreError as error:
        missing = [peer for peer, key in zip(peers, keys, strict=True) if not store.check([key])]
        if not missing:
            raise
        raise StartupTimeout(missing, store.timeout.total_seconds(), "ranks") from error


class Gathering:
    """Values that the slots of a rank write, and those of its peers after all slots have written.

    `members`: the ranks of each slot's group, because backends of different groups write the same keys. `share` publishes this
    rank's blob and returns those of its peers, by rank.
    """

    def __init__(self, members: Sequence[Container[int]], share: Callable[[bytes], Mapping[int, bytes]]) -> None:
        self._members, self._share = members, share
        self._written: dict[int, tuple[str, bytes]] = {}
        self._found: list[dict[str, bytes]] | None = None
        self._error: BaseException | None = None
        self._changed = Condition()

    def offer(self, slot: int, key: str, value: bytes) -> bool:
        """Stores a slot's first value; that of the last slot starts the exchange. False if the slot has written before."""
        with self._changed:
            if slot in self._written:
                return False
            self._written[slot] = (key, value)
            if len(self._written) < len(self._members):
                return True
        try:
            found: list[dict[str, bytes]] = [{key: value} for _, (key, value) in sorted(self._written.items())]
            for rank, blob in self._share(_pack_slots(self._written)).items():
                for number, name, written in _unpack_slots(blob):
                    if rank in self._members[number]:
                        found[number][name] = written
        except BaseException as error:
            self.fail(error)
            raise
        with self._changed:
            self._found = found
            self._changed.notify_all()
        return True

    def fail(self, error: BaseException) -> None:
        """Wakes every waiting slot; they raise `error`."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def wait_for_values(self, slot: int, timeout: timedelta) -> dict[str, bytes]:
        """Waits for the exchange; key → value of a slot, of this rank and its peers."""
        with self._changed:
            # Twice the timeout of the exchange, which reports the missing ranks itself.
            self._changed.wait_for(lambda: self._found is not None or self._error is not None, 2 * timeout.total_seconds() + 5)
            if self._error is not None:
                raise self._error
            if self._found is None:
                raise dist.DistStoreError(f"the other groups of this rank were not created within {timeout.total_seconds():g} s")
            return self._found[slot]


def _pack_slots(written: dict[int, tuple[str, bytes]]) -> bytes:
    parts = []
    for slot, (key, value) in sorted(written.items()):
        name = key.encode()
        parts += [_SLOT.pack(slot, len(name)), name, _SLOT.pack(slot, len(value)), value]
    return b"".join(parts)


def _unpack_slots(blob: bytes) -> Iterable[tuple[int, str, bytes]]:
    at, fields, slot = 0, [], 0
    while at < len(blob):
        slot, size = _SLOT.unpack_from(blob, at)
        at += _SLOT.size
        fields.append(bytes(blob[at : at + size]))
        at += size
        if len(fields) == 2:
            yield slot, fields[0].decode(), fields[1]
            fields = []


class SlotStore(dist.Store):
    """The store over which a group of a rank is created: its first value goes into the gathering, everything else to `behind`."""

    def __init__(self, gathering: Gathering, slot: int, behind: dist.Store) -> None:
        super().__init__()
        self._gathering, self._slot, self._behind = gathering, slot, behind

    def clone(self) -> SlotStore:
        """Returns itself."""
        return self

    @property
    def timeout(self) -> timedelta:
        """Longest time that a call may wait."""
        found: timedelta = self._behind.timeout
        return found

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of the store behind."""
        self._behind.set_timeout(timeout)

    def set(self, key: str, value: bytes | str) -> None:
        """Goes into the gathering if it is the slot's first value."""
        if not self._gathering.offer(self._slot, key, value.encode() if isinstance(value, str) else bytes(value)):
            self._behind.set(key, value)

    def get(self, key: str) -> bytes:
        """From memory if a peer has published it."""
        found = self._gathering.wait_for_values(self._slot, self.timeout)
        return found[key] if key in found else self._behind.get(key)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Sends no message for keys that peers have published."""
        limit = self.timeout if timeout is None else timeout
        found = self._gathering.wait_for_values(self._slot, limit)
        others = [key for key in keys if key not in found]
        if others:
            self._behind.wait(others, limit)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """As `get` of each key."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes | str]) -> None:
        """As `set` of each key."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist."""
        found = self._gathering.wait_for_values(self._slot, self.timeout)
        others = [key for key in keys if key not in found]
        return not others or bool(self._behind.check(others))

    def add(self, key: str, amount: int) -> int:
        """Uses the store behind, as do all methods below."""
        return int(self._behind.add(key, amount))

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """The value afterwards."""
        found: bytes = self._behind.compare_set(key, expected, desired)
        return found

    def delete_key(self, key: str) -> bool:
        """Deletes a key; whether it existed."""
        return bool(self._behind.delete_key(key))

    def num_keys(self) -> int:
        """Keys of the store behind."""
        return int(self._behind.num_keys())

    def append(self, key: str, value: bytes | str) -> None:
        """Appends to a value."""
        self._behind.append(key, value)

    def has_extended_api(self) -> bool:
        """As the store behind."""
        return bool(self._behind.has_extended_api())
