"""Registry of the stores that a start can use, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.fleet.startup.node_store import NodeStore
from windtunnel.fleet.startup.redis_store import RedisStore


@dataclass(frozen=True)
class StorePlace:
    """Where a rank finds its stores."""

    host: str
    """Host of the store that all ranks share."""
    port: int
    """Its port."""
    rank: int
    world: int
    ranks_per_node: int = 8
    local_port: int = 0
    """Port of the node's own store on 127.0.0.1 (hierarchical only)."""
    serve: bool = True
    """Whether rank 0 runs the shared TCP server and each node's lowest rank the local one. False if they run elsewhere, as Redis
    always does.
    """
    prefix: str = ""
    """Distinguishes starts that share a Redis server."""
    timeout: timedelta = timedelta(seconds=300)


def _tcp(host: str, port: int, place: StorePlace, serve: bool) -> dist.Store:
    return dist.TCPStore(host, port, None, serve, place.timeout, wait_for_workers=False)


def _open_tcp(place: StorePlace) -> dist.Store:
    return _tcp(place.host, place.port, place, place.serve and place.rank == 0)


def _open_redis(place: StorePlace) -> dist.Store:
    return RedisStore(place.host, place.port, place.prefix, place.timeout)


def _open_hierarchical(place: StorePlace) -> dist.Store:
    if not place.local_port:
        raise SpecError("local_port", place.local_port, "a port of this node", "The hierarchical store has a server on each node.")
    local = _tcp("127.0.0.1", place.local_port, place, place.serve and place.rank % place.ranks_per_node == 0)
    return NodeStore(local, lambda: _open_tcp(place), place.rank, place.world, place.ranks_per_node)


OPENERS: dict[str, Callable[[StorePlace], dist.Store]] = {
    "tcp": _open_tcp,
    "redis": _open_redis,
    "hierarchical": _open_hierarchical,
}


def open_store(name: str, place: StorePlace) -> dist.Store:
    """Opens the store `name` of OPENERS for the rank at `place`. UnknownName for another name."""
    if name not in OPENERS:
        raise UnknownName("store", name, tuple(OPENERS))
    return OPENERS[name](place)
