"""Calls of sharded state: gathers of parameters and reductions of gradients, over sharding groups and between replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

import numpy as np

from windtunnel.predict.category import Category
from windtunnel.predict.program.demands import Demand, Quantity
from windtunnel.predict.program.stage import PASSES, Label, Stage
from windtunnel.workload import Axis
from windtunnel.workload.schedules import Action, Pass

Pieces = tuple[tuple[int, int], ...]
Held = tuple[float, float]
"""Elements on a GPU: of parameters outside of experts, and of experts, which other ranks share."""
Amounts = dict[Quantity, float]
"""How much there is of what calls are proportional to."""
WEIGHTS = (Pass.BACKWARD, Pass.WEIGHT_GRADIENT)
"""Passes that produce gradients of parameters."""
OF_WEIGHTS = np.array([way in WEIGHTS for way in Pass])
"""The same by `Pass`."""


def held_parameters(stage: Stage, pieces: Pieces) -> Held:
    """Parameters of blocks with repeats."""
    blocks = stage.workload.blocks
    experts = sum(blocks[b].expert_parameters * times for b, times in pieces)
    return sum(blocks[b].parameters * times for b, times in pieces) - experts, experts


def amounts_of(size: Held) -> Amounts:
    """What calls of replicated state are proportional to."""
    return {Quantity.DENSE: size[0], Quantity.EXPERTS: size[1]}


def sharded_tensors(stage: Stage, blocks: Iterable[int]) -> tuple[float, ...]:
    """Elements of each of the blocks' sharded tensors."""
    least = stage.workload.job.runtime.persistent_parameters
    return tuple(size for block in blocks for size in stage.workload.blocks[block].tensors.weights if size >= least)


def shares(stage: Stage, tensors: tuple[float, ...]) -> tuple[float, ...]:
    """Shares into which the calls of sharded tensors divide: one, or one per tensor."""
    if stage.workload.job.runtime.sharded_calls == "block":
        return (1.0,)
    return tuple(size / sum(tensors) for size in tensors) or (1.0,)


def gather(
    stage: Stage,
    label: Label,
    demands: Iterable[Demand],
    amounts: Amounts,
    waits: tuple[int, ...],
    most: float = math.inf,
    parts: tuple[float, ...] = (1.0,),
) -> int | None:
    """All-gathers parameters, at most `most` bytes per call; returns the last call, None if there is none. `parts`: shares of
    calls that may be cut."""
    last_call = None
    for row, size in gather_calls(demands, amounts, most, parts):
        last_call = stage.comm(label, row, size, waits, Category.PARAMETER_GATHER)
    return last_call


def gather_calls(
    demands: Iterable[Demand], amounts: Amounts, most: float = math.inf, parts: tuple[float, ...] = (1.0,)
) -> list[tuple[Demand, float]]:
    """The calls of `gather`, and their bytes."""
    found: list[tuple[Demand, float]] = []
    for of, rows in groupby(demands, key=attrgetter("of")):
        calls = [row for row in rows if row.axis is not Axis.NONE]
        if not calls or not amounts[of]:
            continue
        for row, bytes_ in [(row, row.size(amounts[of], part)) for part in (parts if calls[0].cut else (1.0,)) for row in calls]:
            count = max(1, math.ceil(bytes_ / most))
            found += [(row, bytes_ / count)] * count
    return found


def reduce(
    stage: Stage,
    label: Label,
    demands: Iterable[Demand],
    size: Held,
    waits: tuple[int, ...],
    parts: tuple[float, ...] = (1.0,),
) -> int | None:
    """Reduces gradients; returns the last call, None if there is none. `parts`: shares of calls that may be cut."""
    amounts = amounts_of(size)
    last_call, after, before = None, waits, None
    for row in demands:
        if row.axis is Axis.NONE or not amounts[row.of]:
            continue
        if row.of is not before:
            after, before = waits, row.of
        for part in parts if row.cut else (1.0,):
            moved = row.size(amounts[row.of], part)
            last_call = stage.comm(label, row, moved, after if row.follows else waits, Category.GRADIENT_REDUCE)
            after = (last_call,)
    return last_call


def template_of(stage: Stage, action: Action, beside: Action | None) -> int:
    """Template of `action`, or of it and the one `beside` it."""
    chunks = stage.workload.stages[stage.index]
    if beside is not None:
        return stage.templates.pair(chunks[action.chunk].blocks, chunks[beside.chunk].blocks)
    return stage.templates.pieces(chunks[action.chunk].blocks, action.direction, True)


def label_of(action: Action) -> Label:
    """Label of a single pass."""
    return int(PASSES[action.direction]), action.micro_batch, action.chunk
