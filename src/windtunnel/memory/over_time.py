"""A stage's memory over one step, by content: the replay of full steps with times. Replay of tensor lifetimes by the caching
allocator: the bytes that a stage's process reserves.

A stage's replay as a snapshot that PyTorch's memory viewer opens (pytorch.org/memory_viz, torch.cuda._memory_viz).

The keys are those that `torch.cuda.memory._snapshot` documents. Instead of a stack, an entry has one frame: the tensor's kind as
the function, the pass that allocated it as the file.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.memory.allocator import CachingAllocator, OutOfMemory, PoolBlock, PoolSegment, settings_of
from windtunnel.memory.lifetimes import TensorContent, TensorEvent, lifetimes
from windtunnel.memory.result import StageMemory
from windtunnel.workload.graph import Workload

PARTS = tuple(content.name.lower() for content in TensorContent)
"""Keys of tensor contents, in the order of a picture from bottom to top."""


MOMENTS = 400
"""Moments of a stage that are drawn, or written as JSON, at most."""


@dataclass(frozen=True)
class NoRoom:
    """An allocation that found no room: after `time` seconds of the first or second `step`, of `size` bytes for `content`, one of
    PARTS, while `held` bytes of each part were there, in `reserved` of at most `limit` bytes of segments."""

    step: int
    time: float
    size: float
    content: str
    held: dict[str, float]
    reserved: float
    limit: float


@dataclass(frozen=True)
class OverTime:
    """Bytes of one stage's fullest GPU at n moments of a step, `time` [n] in seconds.

    `parts` [n, PARTS] are tensors; `reserved` [n] what the allocator holds for them; `context` lies outside it.
    """

    stage: int
    time: Floats
    parts: Floats
    reserved: Floats
    context: float
    capacity: float
    no_room: NoRoom | None = None
    """Where the allocator ran out of memory: the end of the moments."""

    @property
    def allocated(self) -> Floats:
        """[n] all tensors."""
        return np.asarray(self.parts.sum(axis=1))

    @property
    def shown(self) -> Floats:
        """[n] total bytes, as nvidia-smi shows them."""
        return self.reserved + self.context

    def thin(self, most: int) -> OverTime:
        """At most about `most` moments: of each interval the one with most allocated."""
        if len(self.time) <= most:
            return self
        edges = np.unique(np.linspace(0, len(self.time), most + 1).astype(np.int64))
        level = self.allocated
        keep = np.array([a + int(level[a:b].argmax()) for a, b in zip(edges[:-1], edges[1:], strict=True)])
        return OverTime(
            self.stage, self.time[keep], self.parts[keep], self.reserved[keep], self.context, self.capacity, self.no_room
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data of at most `MOMENTS` moments: lists by part and in all, bytes at `time_s`."""
        thin = self.thin(MOMENTS)
        parts = {part: thin.parts[:, at] for at, part in enumerate(PARTS)}
        return {
            "stage": thin.stage,
            "time_s": thin.time,
            **parts,
            "allocated": thin.allocated,
            "reserved": thin.reserved,
            "shown": thin.shown,
            "context": thin.context,
            "capacity": thin.capacity,
            "no_room": None if thin.no_room is None else vars(thin.no_room),
        }


def over_time(
    workload: Workload,
    stage: int,
    times: Sequence[tuple[float, float]],
    context: float,
    limit: float,
    until_full: bool = False,
) -> OverTime:
    """The second step of `stage` moment by moment; `times` are begin and end in seconds of its passes in order, then of its update.

    CUDA can provide `limit` bytes. Raises SpecError for a wrong number of times, OutOfMemory if the allocator has no room; with
    `until_full` the moments end there instead, in the step in which that is, with `no_room`.
    """
    passes = len(workload.schedule[stage])
    if len(times) != passes + 1:
        raise SpecError("times", len(times), f"one for each of the stage's {passes} passes, and one for the update")
    job = workload.job
    pool = CachingAllocator(settings_of(job.runtime.alloc_conf), limit)
    live: dict[int, PoolBlock] = {}
    parts = np.zeros(len(PARTS))
    turns: list[int] = []
    levels: list[Floats] = []
    reserved: list[float] = []
    events = lifetimes(workload, stage, whole=True)
    full: tuple[OutOfMemory, TensorContent, int] | None = None
    for tensor, size, stream, content, _, _, turn in events:
        if turn == passes + 1 and turns and turns[-1] <= passes and turns[-1] != turn - passes - 1:
            turns, levels, reserved = [], [], []  # the second step begins
        if size > 0.0:
            try:
                live[tensor] = pool.malloc(size, stream)
            except OutOfMemory as error:
                if not until_full:
                    raise
                full = (error, TensorContent(content), turn)
                break
        else:
            pool.free(live.pop(tensor))
        parts[content] += size
        turns.append(turn % (passes + 1))
        levels.append(parts.copy())
        reserved.append(pool.reserved)
    at = np.array(turns, np.int64)
    time = _times_of(at, times, passes)
    no_room = None
    if full is not None:
        time = np.minimum.accumulate(time[::-1])[::-1]  # what is there before the first step begins belongs to its begin
        no_room = _no_room(*full, float(time[-1]) if len(time) else times[0][0], parts, passes)
    return OverTime(
        stage,
        np.maximum.accumulate(time),
        np.maximum(np.array(levels), 0.0),
        np.array(reserved, np.float64),
        context,
        float(job.cluster.gpu.memory),
        no_room,
    )


def _times_of(turns: Int64s, times: Sequence[tuple[float, float]], passes: int) -> Floats:
    """Seconds of allocations, which lie evenly in the passes that they belong to."""
    begin, end = np.array(times).T
    count = np.bincount(turns, minlength=passes + 1)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    share = (np.arange(len(turns)) - first[turns]) / np.maximum(count[turns], 1)
    return np.asarray(begin[turns] + share * (end[turns] - begin[turns]))


def _no_room(lack: OutOfMemory, content: TensorContent, turn: int, when: float, parts: Floats, passes: int) -> NoRoom:
    """The end of the moments: a tensor of `content` that found no room beside `parts`."""
    held = {name: float(size) for name, size in zip(PARTS, np.maximum(parts, 0.0), strict=True)}
    step = 1 + turn // (passes + 1)
    return NoRoom(step, when, float(lack.size), content.name.lower(), held, float(lack.reserved), float(lack.limit))


@dataclass(frozen=True)
class Pooled:
    """Peaks of the allocator, in bytes.

    `failed`: no free block was large enough, even after `retries`.
    """

    allocated: float
    reserved: float
    retries: int
    failed: bool

    @property
    def fragmentation(self) -> float:
        """Bytes reserved less allocated, each at its own highest point."""
        return self.reserved - self.allocated


def replay_pool(workload: Workload, stage: int, limit: float) -> Pooled:
    """Bytes that `stage` reserves if CUDA can provide `limit` bytes."""
    pool = CachingAllocator(settings_of(workload.job.runtime.alloc_conf), limit)
    live: dict[int, PoolBlock] = {}
    failed = False
    try:
        for tensor, size, stream, *_ in lifetimes(workload, stage):
            if size > 0.0:
                live[tensor] = pool.malloc(size, stream)
            else:
                pool.free(live.pop(tensor))
    except OutOfMemory:
        failed = True
    return Pooled(pool.peak_allocated, pool.peak_reserved, pool.retries, failed)


def replay(workload: Workload, memory: Sequence[StageMemory]) -> tuple[Pooled, ...]:
    """Reserved memory of each stage by a replay of PyTorch's allocator, to compare with the sums of `memory_of`.

    CUDA can provide the GPU's memory less the stage's context; a stage that does not fit gets what it asks for. Takes
    15 to 80 ms a stage. Raises SpecError for a `runtime.alloc_conf` that PyTorch would refuse.
    """
    return tuple(replay_pool(workload, m.stage, m.usable - m.context if m.fits else math.inf) for m in memory)


Snapshot = dict[str, Any]
NO_POOL = (0, 0)


def snapshot(workload: Workload, stage: int, limit: float = math.inf) -> Snapshot:
    """Segments of `stage` at the moment of peak allocation, and all allocator events up to then.

    `limit`: bytes that CUDA can provide. Raises OutOfMemory if the allocator has no room.
    """
    settings = settings_of(workload.job.runtime.alloc_conf)
    trace: list[Snapshot] = []
    frames: list[Snapshot] = []

    def note(action: str, address: int, size: int, stream: int) -> None:
        trace.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": stream,
                "frames": frames,
                "time_us": len(trace),
                "pool_id": NO_POOL,
            }
        )

    pool = CachingAllocator(settings, limit, note)
    blocks: dict[int, Any] = {}
    frames_at: dict[int, list[Snapshot]] = {}  # frames by address of a live block
    for tensor, size, stream, _, label, where, _ in _until_highest(lifetimes(workload, stage)):
        frames = [{"name": label, "filename": where, "line": 0}]
        if size > 0.0:
            block = blocks[tensor] = pool.malloc(size, stream)
            frames_at[block.address] = frames
            note("alloc", block.address, block.requested, stream)
        else:
            block = blocks.pop(tensor)
            address, requested = block.address, block.requested
            del frames_at[address]
            for action in ("free_requested", "free_completed"):
                note(action, address, requested, stream)
            pool.free(block)
    return {
        "segments": [_segment(segment, frames_at, settings.expandable) for segment in pool.segments.values()],
        "device_traces": [trace],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": workload.job.runtime.alloc_conf,
            "expandable_segments": settings.expandable,
        },
    }


def dumps(content: Snapshot) -> bytes:
    """The bytes of the file; of plain lists, dicts, tuples, strings and numbers only."""
    return pickle.dumps(content, protocol=4)


def _until_highest(events: list[TensorEvent]) -> list[TensorEvent]:
    level = highest = 0.0
    last = 0
    for place, event in enumerate(events):
        level += event.size
        if level > highest:
            highest, last = level, place
    return events[: last + 1]


def _segment(segment: PoolSegment, frames_at: dict[int, list[Snapshot]], expandable: bool) -> Snapshot:
    mapped = [block for block in segment.blocks() if block.mapped]
    used = sum(block.size for block in mapped if block.allocated)
    active = sum(block.size for block in mapped if not block.is_idle)
    return {
        "device": 0,
        "address": mapped[0].address,
        "total_size": sum(block.size for block in mapped),
        "allocated_size": used,
        "active_size": active,
        "requested_size": sum(block.requested for block in mapped if block.allocated),
        "stream": segment.pool.stream,
        "segment_type": "small" if segment.pool.small else "large",
        "segment_pool_id": NO_POOL,
        "is_expandable": expandable,
        "frames": [],
        "blocks": [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested if block.allocated else block.size,
                "state": "active_allocated" if block.allocated else "inactive" if block.is_idle else "active_awaiting_free",
                "frames": frames_at.get(block.address, []),
            }
            for block in mapped
        ],
    }
