"""Layouts: which blocks each virtual stage has, for all plans with the same pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.predict.program.demands import crossed_boundaries
from windtunnel.search.change import Change
from windtunnel.spec import Job, check
from windtunnel.spec.shapes import SHAPES, Places
from windtunnel.workload import build
from windtunnel.workload.graph import Block
from windtunnel.workload.identity import BlockKey
from windtunnel.workload.schedules import Pass, table

SPLIT = ("zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev")
"""Schedules that may run the halves of a backward pass apart."""


@dataclass(frozen=True)
class PipelineLayout:
    """`keys` of the blocks as `keys_without_policy` has them; `counts` [parts, blocks]: repeats of each block in each part of the
    model; `places`: parts of each stage's virtual stages.

    `copies` of the model are in one pipeline. `pairs`: some passes run beside each other; `split`: backward passes run in halves.
    `crosses` [parts]: whether a transfer comes before the part (the first never).
    """

    pp: int
    vpp: int
    schedule: str
    keys: tuple[BlockKey, ...]
    counts: Floats
    places: Places
    copies: int
    pairs: bool
    split: bool
    crosses: Bools

    @cached_property
    def stage_parts(self) -> Int64s:
        """[stages, virtual stages]: `places` as an array."""
        return np.array(self.places, np.int64)

    @cached_property
    def stage_counts(self) -> Floats:
        """[stages, blocks]: repeats of each block on each stage."""
        return np.stack([self.counts[list(parts)].sum(axis=0) for parts in self.places])


def with_few_batches(job: Job) -> Job:
    """`job` with few micro batches, which do not change the layout."""
    plan = job.plan
    shape = SHAPES[plan.schedule_name]
    rounds = max(shape.least, 2 if shape.even or job.runtime.moe_a2a_overlap else 1)
    return Change.of(plan__global_batch=plan.micro_batch * job.dp * plan.pp * rounds, unequal=None).apply_unchecked(job)


def keys_without_policy(blocks: Sequence[Block], recompute: str) -> tuple[BlockKey, ...]:
    """Keys of blocks, without the policy of those layers that have the plan's own: plans differ in it, but not in their layout."""
    keys = [block.key for block in blocks]
    return tuple(replace(key, recompute="") if key.layer is not None and key.recompute == recompute else key for key in keys)


def layout_of(job: Job) -> PipelineLayout:
    """The layout of a job's pipeline. Raises as `spec.check` and `build` do."""
    workload = build(check(with_few_batches(job)))
    plan = job.plan
    parts = plan.pp * plan.vpp if job.copies == 1 else plan.pp
    counts = np.zeros((parts, len(workload.blocks)))
    for stage, chunks in enumerate(workload.stages):
        for chunk, part in zip(chunks, job.places[stage], strict=True):
            counts[part] = 0.0
            for block, times in chunk.blocks:
                counts[part, block] += times
    paired = any(table(order)[:, 3].any() for order in workload.schedule)
    split = any(action.direction is Pass.INPUT_GRADIENT for order in workload.schedule for action in order)
    crosses = np.array([False, *crossed_boundaries(job)])
    keys = keys_without_policy(workload.blocks, plan.recompute)
    return PipelineLayout(plan.pp, plan.vpp, plan.schedule_name, keys, counts, job.places, job.copies, paired, split, crosses)
