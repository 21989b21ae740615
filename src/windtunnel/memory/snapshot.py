"""A stage's replay as a snapshot that PyTorch's memory viewer opens (pytorch.org/memory_viz, torch.cuda._memory_viz).

The keys are those that `torch.cuda.memory._snapshot` documents. Instead of a stack, an entry has one frame: the tensor's kind as
the function, the pass that allocated it as the file.
"""

from __future__ import annotations

import math
import pickle
from typing import Any

from windtunnel.memory.allocator import CachingAllocator, PoolSegment, settings_of
from windtunnel.memory.lifetimes import TensorEvent, lifetimes
from windtunnel.workload.graph import Workload

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
