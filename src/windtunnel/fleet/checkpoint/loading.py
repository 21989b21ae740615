"""Loads one step on all ranks: planned by DCP, read once, verified by hash before any tensor is changed.

Distribution of a step's files: which rank reads which file, and how its bytes reach the ranks that need them. Each byte is read
from storage once.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, SpecError
from windtunnel.fleet.checkpoint.folder import FoundStep, StoreError, StorePath
from windtunnel.fleet.checkpoint.manifest import METADATA, ShardFile, hash_of
from windtunnel.fleet.checkpoint.pickles import load_object, read_metadata
from windtunnel.fleet.checkpoint.rank_group import RankGroup
from windtunnel.fleet.checkpoint.sources import LocalCopy, read_from_memory, read_from_storage
from windtunnel.fleet.checkpoint.states import NamedOptions, PerRank, collect_state, rank_key

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


@dataclass(frozen=True)
class LoadedStep:
    """Result of a load on this rank."""

    step: int
    storage_bytes: int
    """Bytes that this rank read from storage."""
    memory_bytes: int
    """Bytes that this rank read from memory."""
    received_bytes: int
    """Bytes received from other ranks."""
    source: str
    """The slowest source of any rank's files: memory, neighbour or storage."""
    passed_over: tuple[tuple[int, str], ...]
    """Damaged steps that were skipped, with the reason."""
    seconds: float = 0.0


@dataclass(frozen=True)
class LoadExchange:
    """What the ranks of a load have agreed on, and what this rank has read."""

    requests: list[ReadRequest]
    """What each rank needs."""
    chosen: dict[str, int]
    """The reader of each file."""
    read: dict[str, memoryview]
    """Bytes of the files that this rank has read."""
    hashes: dict[tuple[str, int], str]
    counted: dict[str, int]
    """Bytes read by this rank, by source."""
    source: str
    """The slowest source of any rank's files."""


class PlainLoadPlanner(DefaultLoadPlanner):
    """DCP's planner, which unpickles objects of the state with `load_object` instead of without limits."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Puts an object into the state. SpecError if it has a class that is not allowed."""
        name = read_item.dest_index.fqn
        loaded = load_object(value)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded


class RankLoadPlan:
    """This rank's part of loading `metadata` into `state`. SpecError if the state has entries that the checkpoint lacks, or other
    shapes.
    """

    def __init__(self, state: dict[str, Any], metadata: Metadata, rank: int, world: int) -> None:
        self.keys = {key: (rank_key(key, rank % world) if isinstance(value, PerRank) else key) for key, value in state.items()}
        self.state = {self.keys[key]: value for key, value in zip(state, collect_state(state, rank).values(), strict=True)}
        for key, value in self.state.items():
            if isinstance(value, NamedOptions):
                value.drop_missing_options(key, metadata.state_dict_metadata)
        self.planner = PlainLoadPlanner()
        try:
            self.planner.set_up_planner(self.state, metadata, rank == 0)
            self.plan: LoadPlan = self.planner.finish_plan(self.planner.create_local_plan())
        except (RuntimeError, ValueError) as error:
            raise SpecError(
                "state", str(error), "what the checkpoint holds", "Load with the names and shapes that were saved."
            ) from error
        self.places = {item.storage_index: metadata.storage_data[item.storage_index] for item in self.plan.items}

    def request(self, held: frozenset[str]) -> ReadRequest:
        """What this rank needs of each file."""
        ranges: dict[str, set[tuple[int, int]]] = {}
        for place in self.places.values():
            ranges.setdefault(place.relative_path, set()).add((place.offset, place.length))
        return ReadRequest({name: tuple(sorted(found)) for name, found in ranges.items()}, held)

    def put(self, parts: dict[str, FileParts]) -> None:
        """Copies the bytes into the state's tensors, and other objects into `state`."""
        for item in self.plan.items:
            place = self.places[item.storage_index]
            raw = io.BytesIO(parts[place.relative_path].bytes(place.offset, place.length))
            if item.type == LoadItemType.BYTE_IO:
                self.planner.load_bytes(item, raw)
                continue
            tensor = narrow_tensor_by_index(
                torch.load(raw, map_location="cpu", weights_only=True), item.storage_offsets, item.lengths
            )
            target = self.planner.resolve_tensor(item).detach()
            target.copy_(tensor)
            self.planner.commit_tensor(item, target)


def read_step(
    ranks: RankGroup, found: FoundStep | None, plan_of: Any, held: dict[str, LocalCopy]
) -> tuple[RankLoadPlan, LoadExchange] | str:
    """The bytes of a step, read and verified by all ranks together, or the reason why it cannot be loaded. `found` is needed on
    rank 0 only. Collective.

    SpecError on all ranks if one of them cannot load this state from it, or a store does not answer one of them.
    """
    metadata_of_step = ranks.broadcast_from_first(_read_metadata(found) if found is not None else None)
    if isinstance(metadata_of_step, SilentStore):
        raise metadata_of_step.error()
    if isinstance(metadata_of_step, str):
        return metadata_of_step
    path, manifest, raw = metadata_of_step
    plan, problem = None, None
    try:
        plan = plan_of(read_metadata(raw), manifest.world)
    except pickle.UnpicklingError as error:  # on all ranks, since all have the same bytes
        return str(error)
    except SpecError as error:
        problem = error
    requests = ranks.all_gather(plan.request(frozenset(held)) if plan else str(problem))
    wrong = next((one for one in requests if isinstance(one, str)), None)
    if plan is None or wrong is not None:
        raise problem or SpecError("state", wrong, "the same on all ranks")
    shards = [one for one in manifest.shards if one.name != METADATA]
    chosen = assign_readers(shards, requests)
    mine = [one for one in shards if chosen[one.name] == ranks.rank]
    silent = None
    try:
        read, counted, bad = _read_files(path, mine, held)
    except StoreError as error:
        read, counted, bad, silent = {}, {}, [], SilentStore(str(path), str(error))
    if no_answer := next((one for one in ranks.all_gather(silent) if one is not None), None):
        raise no_answer.error()
    verdicts = ranks.all_gather((bad, hashes_for(read, requests, ranks.rank), [name for name, size in counted.items() if size]))
    damage = [one for bad, _, _ in verdicts for one in bad]
    if damage:
        return f"{', '.join(damage)}: damaged"
    hashes = {key: value for _, one, _ in verdicts for key, value in one.items()}
    sources = {name for _, _, names in verdicts for name in names}
    source = next((one for one in ("storage", "neighbour") if one in sources), "memory")
    return plan, LoadExchange(requests, chosen, read, hashes, counted, source)


@dataclass(frozen=True)
class SilentStore:
    """A store that did not give what it has. Its step may be intact, so none before it is loaded in its place."""

    where: str
    why: str

    def error(self) -> FileError:
        """The error that all ranks raise."""
        return FileError(
            self.where, "an error", "a store that answers", f"{self.why}. Run again once it does; nothing was changed."
        )


def _read_metadata(found: FoundStep) -> Any:
    """Folder, manifest and `.metadata` of a step, or what is wrong with them."""
    assert found.manifest is not None
    shard = next((one for one in found.manifest.shards if one.name == METADATA), None)
    try:
        raw = read_from_storage(found.path / METADATA, shard, lambda count: None) if shard else None
    except StoreError as error:
        return SilentStore(str(found.path), str(error))
    return (found.path, found.manifest, bytes(raw)) if raw is not None else f"{METADATA}: damaged"


def _read_files(
    path: Path | StorePath, mine: list[ShardFile], held: dict[str, LocalCopy]
) -> tuple[dict[str, memoryview], dict[str, int], list[str]]:
    """The files that this rank reads, bytes by source, and the names of damaged files."""
    read: dict[str, memoryview] = {}
    counted = {"storage": 0, "memory": 0, "neighbour": 0}
    bad = []

    def count(size: int) -> None:
        counted["storage"] += size

    for shard in mine:
        data = read_from_memory(held[shard.hash], shard) if shard.hash in held else None
        if data is not None:
            counted[held[shard.hash].source] += shard.bytes
        else:
            data = read_from_storage(path / shard.name, shard, count)
        if data is None:
            bad.append(shard.name)
        else:
            read[shard.name] = data
    return read, counted, bad


def load_into_state(
    ranks: RankGroup, step: int, plan: RankLoadPlan, reading: LoadExchange, passed_over: list[tuple[int, str]]
) -> LoadedStep:
    """Distributes the bytes to the ranks and copies them into the state. Collective."""
    parts, received = exchange_parts(ranks, reading.requests, reading.chosen, reading.read, reading.hashes)
    plan.put(parts)
    counted = reading.counted
    return LoadedStep(
        step, counted["storage"], counted["memory"] + counted["neighbour"], received, reading.source, tuple(passed_over)
    )
