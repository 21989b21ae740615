"""Distribution of a step's files: which rank reads which file, and how its bytes reach the ranks that need them. Each byte is read
from storage once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from windtunnel.fleet.checkpoint.hashing import hash_of
from windtunnel.fleet.checkpoint.manifest import ShardFile
from windtunnel.fleet.checkpoint.rank_group import RankGroup

Ranges = tuple[tuple[int, int], ...]
"""(offset, bytes) of parts of a file, in order."""


@dataclass(frozen=True)
class ReadRequest:
    """What one rank needs of each file, and the hashes of the files that its node has in memory."""

    ranges: dict[str, Ranges]
    held: frozenset[str] = field(default_factory=frozenset)


def assign_readers(shards: Sequence[ShardFile], requests: Sequence[ReadRequest]) -> dict[str, int]:
    """The rank that reads each file: preferably one whose node has it in memory, then one that needs it most, then the least
    busy.
    """
    load = [0] * len(requests)
    chosen = {}
    for shard in sorted(shards, key=lambda one: (-one.bytes, one.name)):

        def rating(rank: int, shard: ShardFile = shard) -> tuple[bool, bool, int, int]:
            needs = shard.name in requests[rank].ranges
            return (shard.hash in requests[rank].held, needs, -load[rank], -rank)

        chosen[shard.name] = max(range(len(requests)), key=rating)
        load[chosen[shard.name]] += shard.bytes
    return chosen


def parts_of(data: memoryview, ranges: Ranges) -> torch.Tensor:
    """The given parts of a file as one tensor of bytes."""
    whole = _tensor(data)
    return torch.cat([whole[at : at + size] for at, size in ranges]) if ranges else whole[:0]


def hashes_for(read: dict[str, memoryview], requests: Sequence[ReadRequest], me: int) -> dict[tuple[str, int], str]:
    """The hash of what each other rank receives of each file that this rank has read."""
    cache: dict[tuple[str, Ranges], str] = {}
    hashes = {}
    for name, data in read.items():
        for rank, request in enumerate(requests):
            if rank != me and name in request.ranges:
                key = (name, request.ranges[name])
                if key not in cache:
                    cache[key] = hash_of(parts_of(data, request.ranges[name]).numpy())
                hashes[name, rank] = cache[key]
    return hashes


class FileParts:
    """The parts of a file that a rank has, addressed by their offset in the file."""

    def __init__(self, ranges: Ranges, data: torch.Tensor | memoryview) -> None:
        self._data, self._at = data, {}
        at = 0
        for offset, size in ranges:
            self._at[offset, size] = at if isinstance(data, torch.Tensor) else offset
            at += size

    def bytes(self, offset: int, size: int) -> bytes:
        """Bytes of the file."""
        at = self._at[offset, size]
        part = self._data[at : at + size]
        return bytes(part.numpy() if isinstance(part, torch.Tensor) else part)


def exchange_parts(ranks: RankGroup, requests: Sequence[ReadRequest], chosen: dict[str, int], read: dict[str, memoryview],
              hashes: dict[tuple[str, int], str]) -> tuple[dict[str, FileParts], int]:  # fmt: skip
    """What this rank needs of every file, by name, and the number of bytes received from other ranks. A collective call.

    A file of which all ranks need the same parts is broadcast; otherwise its reader sends to each rank. ValueError if received
    bytes differ from those that were read.
    """
    mine, got, received = requests[ranks.rank].ranges, {}, 0
    waiting: list[tuple[Any, torch.Tensor]] = []
    arrived: dict[str, torch.Tensor] = {}
    for tag, name in enumerate(sorted(chosen)):
        reader = chosen[name]
        if reader == ranks.rank and name in mine:
            got[name] = FileParts(mine[name], read[name])
        wanted = {request.ranges.get(name) for request in requests}
        if len(wanted) == 1 and None not in wanted and ranks.world > 1:
            part = parts_of(read[name], mine[name]) if reader == ranks.rank else _empty_bytes(mine[name])
            dist.broadcast(part, src=reader, group=ranks.group)
            if reader != ranks.rank:
                arrived[name] = part
            continue
        if reader == ranks.rank:
            for rank, request in enumerate(requests):
                if rank != reader and name in request.ranges:
                    part = parts_of(read[name], request.ranges[name])
                    waiting.append((dist.isend(part, dst=rank, group=ranks.group, tag=tag), part))
        elif name in mine:
            arrived[name] = _empty_bytes(mine[name])
            waiting.append((dist.irecv(arrived[name], src=reader, group=ranks.group, tag=tag), arrived[name]))
    for work, _ in waiting:
        work.wait()
    for name, part in arrived.items():
        if hash_of(part.numpy()) != hashes[name, ranks.rank]:
            raise ValueError(f"{name}: rank {ranks.rank} got other bytes than rank {chosen[name]} read")
        got[name] = FileParts(mine[name], part)
        received += part.numel()
    return got, received


def _empty_bytes(ranges: Ranges) -> torch.Tensor:
    return torch.empty(sum(size for _, size in ranges), dtype=torch.uint8)


def _tensor(data: memoryview) -> torch.Tensor:
    with warnings.catch_warnings():  # the memory of another process is mapped read-only and never written
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(data, dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)
