"""Stage 1 of a save: copies a rank's state into shared host memory. Training is blocked only for this copy.

Parallel copies of host memory: threads take small pieces from a shared queue.

torch splits each tensor into as many parts as it has threads and waits for all of them: if one core is busy with other work, every
tensor waits for it. Here a delayed thread holds up only one piece.

Layout of a rank's shard: the bytes of DCP's file are laid out in memory before anything is copied.

DCP's planners decide which rank saves what. A tensor is stored as the archive that `torch.save` would write, with space for its
bytes; a save then only copies bytes into that space. Other objects get space to grow, because their length is part of `.metadata`,
which is written once per plan.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint import filesystem as dcp_files
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import DEFAULT_SUFFIX, _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, WriteItemType
from torch.distributed.tensor import DTensor
from torch.serialization import skip_data

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.fleet.checkpoint.manifest import METADATA
from windtunnel.fleet.checkpoint.pickles import load_object
from windtunnel.fleet.checkpoint.rank_group import RankGroup

ALIGNED = 64
Bytes = bytes
"""The type, for classes with a field named bytes."""
_GROWTH = 1024
"""Least space in bytes by which an object may grow before the ranks plan again."""
_PLAIN_GROWTH = 64
"""The same for a plain number or a tuple of numbers."""


@dataclass(frozen=True)
class TensorPlace:
    """Position of a tensor, or of a shard of it, in the image."""

    fqn: str
    offset: tuple[int, ...] | None
    """Offset of the shard in the whole tensor; None for a whole tensor."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    archive: tuple[tuple[int, bytes], ...]
    """(position, bytes) of the parts of the archive around the tensor's bytes."""
    at: int
    """Position of the tensor's bytes in the image."""
    bytes: int


@dataclass(frozen=True)
class ObjectPlace:
    """Position and space of another object in the image."""

    fqn: str
    at: int
    bytes: int


@dataclass(frozen=True)
class ShardLayout:
    """Image of a rank's files: `name` at 0 with `bytes` bytes, followed on rank 0 by `.metadata`."""

    name: str
    bytes: int
    tensors: tuple[TensorPlace, ...]
    objects: tuple[ObjectPlace, ...]
    metadata: Bytes
    signature: Any
    """Changes if the plan must change."""

    @property
    def total(self) -> int:
        """Bytes of the image."""
        return self.bytes + len(self.metadata)

    def files(self) -> list[tuple[str, int, int]]:
        """Name, offset and bytes of each file."""
        shard = [(self.name, 0, self.bytes)] if self.bytes else []
        return shard + ([(METADATA, self.bytes, len(self.metadata))] if self.metadata else [])


def flatten_state(state: dict[str, Any]) -> dict[str, Any]:
    """A nested state as DCP's flat names and values."""
    flat: dict[str, Any] = flatten_state_dict(state)[0]
    return flat


def signature_of(flat: dict[str, Any]) -> Any:
    """What a plan depends on: names, types, shapes, placements."""
    return tuple((name, *_kind(value)) for name, value in flat.items())


def _kind(value: Any) -> tuple[Any, ...]:
    if isinstance(value, DTensor):
        return (value.shape, value.dtype, value.device_mesh, value.placements)
    if isinstance(value, ShardedTensor):
        return (value.size(), value.dtype, tuple(tuple(one.metadata.shard_offsets) for one in value.local_shards()))
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else () if _is_plain(value) else (type(value),)


def local_bytes_of(value: Any, offset: tuple[int, ...] | None) -> torch.Tensor:
    """The tensor whose bytes this rank saves; of a ShardedTensor (FSDP1) the shard that begins at `offset`."""
    if isinstance(value, ShardedTensor):
        return next(one.tensor for one in value.local_shards() if tuple(one.metadata.shard_offsets) == offset).detach()
    tensor = value.to_local() if isinstance(value, DTensor) else value
    if not isinstance(tensor, torch.Tensor):
        raise SpecError("state", type(value).__name__, "tensors, DTensors and ShardedTensors")
    return tensor.detach()


def pack_object(value: Any) -> bytes:
    """An object in torch's legacy format, which allows trailing bytes."""
    if _is_plain(value):
        return _BEFORE + pickle.dumps(value, 2) + _AFTER
    return _torch_save_bytes(value)


def _is_plain(value: Any) -> bool:
    """Whether `torch.save` of a value does no more than pickle: true for most optimizer options, of which there are many."""
    return value is None or type(value) in (bool, int, float) or type(value) is tuple and all(map(_is_plain, value))


def _torch_save_bytes(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


_BEFORE, _, _AFTER = _torch_save_bytes(None).partition(pickle.dumps(None, 2))


def plan_layout(state: dict[str, Any], ranks: RankGroup) -> ShardLayout:
    """The layout of this rank's part of a state; a collective call. SpecError if DCP cannot plan it, or a load would refuse it."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(state, None, ranks.rank == 0)
    plans = ranks.gather_to_first(planner.create_local_plan())
    whole: Any = None
    finished: list[SavePlan] = []
    if ranks.rank == 0:
        finished, whole = planner.create_global_plan(plans)
    mine = planner.finish_plan(ranks.scatter_from_first(finished))
    flat = flatten_state(state)
    name = f"__{ranks.rank}_0{DEFAULT_SUFFIX}"
    tensors, objects, placed, size = _place_items(mine, flat, name)
    infos = ranks.gather_to_first(placed)
    metadata = b""
    if ranks.rank == 0:
        whole.storage_data = {index: info for one in infos for index, info in one}
        whole.storage_meta = StorageMeta()
        if (version := getattr(dcp_files, "CURRENT_DCP_VERSION", None)) is not None:  # torch 2.8 has no version of the format
            whole.version = version
        metadata = pickle.dumps(whole)
    return ShardLayout(name, size, tuple(tensors), tuple(objects), metadata, signature_of(flat))


_Infos = list[tuple[MetadataIndex, _StorageInfo]]


def _place_items(plan: SavePlan, flat: dict[str, Any], name: str) -> tuple[list[TensorPlace], list[ObjectPlace], _Infos, int]:
    tensors: list[TensorPlace] = []
    objects: list[ObjectPlace] = []
    infos: _Infos = []
    at = 0
    for item in plan.items:
        if item.type == WriteItemType.BYTE_IO:
            value = flat[item.index.fqn]
            packed = pack_object(value)
            if not _is_plain(value):
                load_object(io.BytesIO(packed))  # what a load would refuse is not saved
            length = len(packed)
            length += _PLAIN_GROWTH if _is_plain(value) else max(_GROWTH, length // 4)
            objects.append(ObjectPlace(item.index.fqn, at, length))
        else:
            offset = tuple(item.index.offset) if item.index.offset is not None else None
            place, length = _place_tensor(item.index.fqn, offset, local_bytes_of(flat[item.index.fqn], offset), at)
            tensors.append(place)
        infos.append((item.index, _StorageInfo(name, at, length)))
        at += -(-length // ALIGNED) * ALIGNED
    return tensors, objects, infos, at


def _place_tensor(fqn: str, offset: tuple[int, ...] | None, local: torch.Tensor, at: int) -> tuple[TensorPlace, int]:
    """Position of a tensor whose archive begins at `at`, and the archive's length."""
    shape, size = tuple(local.shape), local.numel() * local.element_size()
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)  # the bytes do not exist yet
    stream = io.BytesIO()
    try:
        with skip_data():
            torch.save(torch.empty(shape, dtype=local.dtype), stream)
    finally:
        torch.serialization.set_crc32_options(before)
    raw = stream.getvalue()
    room = torch._C.PyTorchFileReader(io.BytesIO(raw)).get_record_offset("data/0") if size else 0
    parts = ((at, raw[:room]), (at + room + size, raw[room + size :]))
    return TensorPlace(fqn, offset, shape, local.dtype, parts, at + room, size), len(raw)


SLOTS = 2


class Slot:
    """A shared-memory buffer with the image of a rank's files. Its pages are allocated in the constructor."""

    def __init__(self, layout: ShardLayout, copier: PieceCopier) -> None:
        self._copier = copier
        self.descriptor = os.memfd_create("windtunnel-checkpoint")
        os.ftruncate(self.descriptor, max(layout.total, 1))
        self._memory = mmap.mmap(self.descriptor, max(layout.total, 1))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._image = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._image.zero_()  # allocates every page now instead of in the first save
        for place in layout.tensors:
            for at, part in place.archive:
                self._memory[at : at + len(part)] = part
        self._memory[layout.bytes : layout.total] = layout.metadata
        self._views = [self._image[one.at : one.at + one.bytes].view(one.dtype).view(one.shape) for one in layout.tensors]
        self._pinned = torch.cuda.is_available() and _pin(self._image)
        self._stream: Any = torch.cuda.Stream() if self._pinned else None

    def stage(self, layout: ShardLayout, flat: dict[str, Any], objects: list[bytes]) -> None:
        """Copies the state's bytes; returns when the copy is complete. Device tensors are copied on a separate stream."""
        for place, raw in zip(layout.objects, objects, strict=True):
            self._memory[place.at : place.at + place.bytes] = raw.ljust(place.bytes, b"\0")
        tensors = [local_bytes_of(flat[place.fqn], place.offset) for place in layout.tensors]
        if self._stream is None:
            pairs = [(view, one, _is_contiguous_on_host(one)) for view, one in zip(self._views, tensors, strict=True)]
            self._copier.copy((view.data_ptr(), one.data_ptr(), view.nbytes) for view, one, whole in pairs if whole)
            for view, one, whole in pairs:
                if not whole:
                    view.copy_(one)
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for view, tensor in zip(self._views, tensors, strict=True):
                view.copy_(tensor, non_blocking=True)
        self._stream.synchronize()

    def close(self) -> None:
        """Releases the memory; a flush process that has mapped it keeps it."""
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._image.data_ptr())
        self._views = []
        os.close(self.descriptor)


def _is_contiguous_on_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor's bytes are contiguous in host memory and need no conversion."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _pin(image: torch.Tensor) -> bool:
    """Pins the memory for copies by the device; whether that succeeded."""
    return int(torch.cuda.cudart().cudaHostRegister(image.data_ptr(), image.numel(), 0)) == 0


def pack_objects(layout: ShardLayout, flat: dict[str, Any]) -> list[bytes]:
    """The objects of the state that this rank saves, as bytes."""
    return [pack_object(flat[place.fqn]) for place in layout.objects]


def objects_fit(layout: ShardLayout, objects: list[bytes]) -> bool:
    """Whether all objects fit their space in the image."""
    return all(len(raw) <= place.bytes for raw, place in zip(objects, layout.objects, strict=True))


PIECE = 4 << 20
"""Bytes of a piece: a third of a millisecond of one core."""

Span = tuple[int, int, int]
"""Target address, source address, bytes."""


class PieceCopier:
    """Copies with `threads` threads, including the caller's."""

    def __init__(self, threads: int) -> None:
        self._others = threads - 1
        self._pool = ThreadPoolExecutor(self._others, "checkpoint-copy") if self._others > 0 else None
        self.copy([])
        if self._pool is not None:  # starts the threads before the first save
            list(self._pool.map(lambda _: None, range(4 * self._others)))

    def copy(self, spans: Iterable[Span]) -> None:
        """Copies all spans, which must not overlap; returns when they are copied."""
        pieces = _cut_pieces(spans)
        others = [self._pool.submit(_copy_pieces, pieces) for _ in range(self._others)] if self._pool is not None else []
        _copy_pieces(pieces)
        for one in others:
            one.result()

    def close(self) -> None:
        """Stops the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _cut_pieces(spans: Iterable[Span]) -> Iterator[Span]:
    """The pieces of the spans. A list iterator may be shared between threads; a generator may not."""
    return iter(
        [
            (target + at, source + at, min(PIECE, size - at))
            for target, source, size in spans
            for at in range(0, size, PIECE)
        ]
    )  # fmt: skip


def _copy_pieces(pieces: Iterator[Span]) -> None:
    for target, source, size in pieces:
        ctypes.memmove(target, source, size)  # releases the interpreter lock
