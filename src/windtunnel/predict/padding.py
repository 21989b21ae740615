"""Samples that are alone in their sequences (`plan.sample`): positions that are padding take time and memory, and are no tokens.

A collator pads to the longest sample of a micro batch, so a step is one of the mean of that length, and memory must hold a micro
batch of the longest sample there is; static shapes are `plan.seq` long in every step.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from windtunnel.base.lengths import draw_lengths, longest_of
from windtunnel.spec.job import Job

DRAWN = 4096
"""Samples whose lengths are drawn, always the same."""
ROUND = 8
"""Positions that lengths are multiples of, on each rank that shares them (`pad_to_multiple_of`)."""


@functools.cache
def _lengths(text: str, longest: int, together: int) -> tuple[float, float]:
    """(mean tokens of a sample, mean of the longest of `together`), of samples cut to `longest`."""
    drawn = np.minimum(draw_lengths("plan.sample", text, DRAWN, np.random.default_rng(1)), longest)
    return float(drawn.mean()), longest_of(drawn, together)


def filled_share(job: Job) -> float:
    """The share of a step's positions that are tokens."""
    plan = job.plan
    return 1.0 if plan.sample is None else _lengths(plan.sample, plan.seq, plan.micro_batch)[0] / plan.seq


def mean_step(job: Job) -> Job | None:
    """The job of a mean step, whose positions are as many as the longest samples of its micro batches take; None where every step
    has those of the plan."""
    plan = job.plan
    if plan.sample is None or plan.padding == "full":
        return None
    mean, longest = _lengths(plan.sample, plan.seq, plan.micro_batch)
    unit = ROUND * 2 * plan.cp * plan.tp
    positions = min(plan.seq, math.ceil(longest / unit) * unit)
    if positions == plan.seq:
        return None
    fields = {"seq": positions, "sample": str(max(1, round(mean))), "padding": "full"}
    return job.model_copy(update={"plan": plan.model_copy(update=fields)})


def note(job: Job) -> str:
    """What padding takes in each step of a job."""
    share, positions = filled_share(job), job.plan.seq
    return (
        f"{100 * (1 - share):.0f} % of positions are padding: samples of {share * positions:,.0f} tokens in the mean take "
        f"{positions:,} (plan.sample). Tokens a second and MFU count tokens alone."
    )
