"""Loads one step on all ranks: planned by DCP, read once, verified by hash before any tensor is changed."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

from windtunnel.base.errors import FileError, SpecError
from windtunnel.fleet.checkpoint.exchange import FileParts, ReadRequest, assign_readers, exchange_parts, hashes_for
from windtunnel.fleet.checkpoint.folder import FoundStep
from windtunnel.fleet.checkpoint.manifest import METADATA, ShardFile
from windtunnel.fleet.checkpoint.paths.store_path import StoreError, StorePath
from windtunnel.fleet.checkpoint.pickles import load_object, read_metadata
from windtunnel.fleet.checkpoint.rank_group import RankGroup
from windtunnel.fleet.checkpoint.sources import LocalCopy, read_from_memory, read_from_storage
from windtunnel.fleet.checkpoint.states import NamedOptions, PerRank, collect_state, rank_key


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
        self.keys = {key: _saved_key(key, value, rank, world) for key, value in state.items()}
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


def _saved_key(key: str, value: Any, rank: int, world: int) -> str:
    return rank_key(key, rank % world) if isinstance(value, PerRank) else key


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
