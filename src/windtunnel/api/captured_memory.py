"""Memory of a captured rank over its last step, by content and by module: a replay of its allocations through PyTorch's allocator.

What a tensor holds follows from when it is allocated and freed: before the first step it is a weight; in an update and for longer
it is state of the optimizer; in a backward pass and for longer a gradient; in a forward pass and beyond it an activation; what goes
where it came is temporary.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.formats.traces.pytorch_et.nodes import ATTENTIONS, PRODUCTS
from windtunnel.memory.allocator import CachingAllocator, PoolBlock
from windtunnel.memory.lifetimes import TensorContent
from windtunnel.memory.over_time import PARTS, OverTime
from windtunnel.records.capture_file import (
    COMPILED,
    COMPILED_END,
    OPTIMIZER,
    OPTIMIZER_END,
    STEP,
    CapturedRank,
    EntryKind,
    steps_of,
)

BEFORE, FORWARD, BACKWARD, UPDATE = range(4)
"""Parts of a job in which a tensor is allocated or freed."""


@dataclass(frozen=True)
class HeldByModule:
    """Bytes and tensors at the highest moment that a module (empty: none) allocated, by content."""

    module: str
    content: str
    bytes: int
    tensors: int


@dataclass(frozen=True)
class CapturedMoments:
    """A rank's memory over its last step."""

    rank: int
    moments: OverTime
    highest: tuple[HeldByModule, ...]
    """At the step's highest moment, most bytes first."""


def passes_of_entries(rank: CapturedRank) -> Int64s:
    """[E] in which part of the job each entry lies: BEFORE, FORWARD, BACKWARD or UPDATE."""
    entries = rank.entries
    passes = np.where(entries["backward"] > 0, BACKWARD, FORWARD).astype(np.int64)
    marks = np.flatnonzero(entries["kind"] == EntryKind.MARK)
    begun = -1
    first = len(entries)
    for mark in marks.tolist():
        name = rank.texts[int(entries["name"][mark])]
        if name == STEP:
            first = min(first, mark)
        elif name == OPTIMIZER:
            begun = mark
        elif name == OPTIMIZER_END and begun >= 0:
            passes[begun:mark] = UPDATE
            begun = -1
    passes[:first] = BEFORE
    return passes


def memory_entries(rank: CapturedRank) -> Int64s:
    """Numbers of the entries that allocate and free: without what a compiled function without products, attention or calls frees
    itself. Inductor makes a kernel of such a function, which holds it in registers."""
    entries, marks = rank.entries, {COMPILED: 1, COMPILED_END: -1}
    in_memory = np.isin(entries["kind"], (EntryKind.ALLOCATE, EntryKind.FREE))
    large = np.array([text.partition(".")[0] in (*PRODUCTS, *ATTENTIONS) for text in rank.texts] + [False])[entries["name"]]
    large = large & (entries["kind"] == EntryKind.OPERATOR) | (entries["kind"] == EntryKind.CALL)
    depth = begun = 0
    for mark in np.flatnonzero(entries["kind"] == EntryKind.MARK).tolist():
        change = marks.get(rank.texts[int(entries["name"][mark])], 0)
        begun = mark if change > 0 and depth == 0 else begun
        depth += change
        if change < 0 and depth == 0 and not large[begun:mark].any():
            made: dict[int, int] = {}
            for number in (begun + np.flatnonzero(in_memory[begun:mark])).tolist():
                address = int(entries["a"][number])
                if entries["kind"][number] == EntryKind.ALLOCATE:
                    made[address] = number
                elif address in made:
                    in_memory[made.pop(address)] = in_memory[number] = False
    return np.flatnonzero(in_memory)


def product_streams(rank: CapturedRank) -> list[int]:
    """Streams with matrix products, on each of which PyTorch allocates a workspace of cuBLAS with the first one."""
    entries = rank.entries[rank.entries["kind"] == EntryKind.OPERATOR]
    products = [number for number, text in enumerate(rank.texts) if text.partition(".")[0] in PRODUCTS]
    return sorted(set(entries["stream"][np.isin(entries["name"], products)].tolist()))


def moments_of(rank: CapturedRank, entry_seconds: Floats, capacity: float, workspace: float = 0.0) -> CapturedMoments:
    """`entry_seconds`: when in the replayed step the host is at each entry of the last step; `workspace`: bytes of cuBLAS's."""
    entries, passes = rank.entries, passes_of_entries(rank)
    window = steps_of(rank)[-1]
    memory = memory_entries(rank)
    memory = memory[memory < window.stop]
    contents = _contents(entries, passes, memory)
    pool = CachingAllocator(limit=math.inf)
    live: dict[int, tuple[PoolBlock, int]] = {}  # by address: the block, and the entry that made it
    parts = np.zeros(len(PARTS))
    streams = product_streams(rank) if workspace else []
    for stream in streams:
        pool.malloc(workspace, stream)
        parts[TensorContent.BUFFERS] += workspace
    times, levels, reserved = [0.0], list[Floats](), list[float]()
    peak, at_peak = -1.0, list[int]()
    for number in memory.tolist():
        address, size = int(entries["a"][number]), int(entries["b"][number])
        if number >= window.start and not levels:
            levels.append(parts.copy())
            reserved.append(float(pool.reserved))
            peak, at_peak = float(parts.sum()), [made for _, made in live.values()]
        if entries["kind"][number] == EntryKind.ALLOCATE:
            live[address] = pool.malloc(size, int(entries["stream"][number])), number
            parts[contents[number]] += size
        elif address in live:
            block, made = live.pop(address)
            pool.free(block)
            parts[contents[made]] -= size
        if number >= window.start:
            times.append(float(entry_seconds[number - window.start]))
            levels.append(parts.copy())
            reserved.append(float(pool.reserved))
            if parts.sum() > peak:
                peak, at_peak = float(parts.sum()), [made for _, made in live.values()]
    if not levels:
        levels, reserved, at_peak = [parts.copy()], [float(pool.reserved)], [made for _, made in live.values()]
    moments = OverTime(
        int(rank.about["rank"]), np.maximum.accumulate(np.array(times)), np.array(levels), np.array(reserved), 0.0, capacity
    )
    held = _held_by_module(rank, at_peak, contents)
    if streams:
        held = (*held, HeldByModule("", PARTS[TensorContent.BUFFERS], round(workspace * len(streams)), len(streams)))
    return CapturedMoments(int(rank.about["rank"]), moments, tuple(sorted(held, key=lambda module: -module.bytes)))


def _contents(entries: np.ndarray, passes: Int64s, memory: Int64s) -> dict[int, int]:
    """Content of each allocation, by the number of its entry."""
    contents: dict[int, int] = {}
    open_: dict[int, int] = {}
    for number in memory.tolist():
        address = int(entries["a"][number])
        if entries["kind"][number] == EntryKind.ALLOCATE:
            open_[address] = number
        elif (made := open_.pop(address, None)) is not None:
            contents[made] = _content(int(passes[made]), int(passes[number]))
    for made in open_.values():
        contents[made] = _content(int(passes[made]), -1)
    return contents


def _content(made: int, freed: int) -> int:
    if made == freed:
        return TensorContent.TEMPORARY
    stays = {
        BEFORE: TensorContent.WEIGHTS, FORWARD: TensorContent.ACTIVATIONS, BACKWARD: TensorContent.GRADIENTS,
        UPDATE: TensorContent.OPTIMIZER,
    }  # fmt: skip
    return stays[made]


def _held_by_module(rank: CapturedRank, made: list[int], contents: dict[int, int]) -> tuple[HeldByModule, ...]:
    sizes, counts = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for number in made:
        module = int(rank.entries["module"][number])
        key = rank.texts[module] if module >= 0 else "", PARTS[contents[number]]
        sizes[key] += int(rank.entries["b"][number])
        counts[key] += 1
    return tuple(HeldByModule(*key, size, counts[key]) for key, size in sizes.most_common())
