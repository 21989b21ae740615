"""Token counts of expert parallelism: what a rank sends to experts, and what the experts on a rank receive."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.rng import Draws
from windtunnel.spec.job import Job

SCALE = 4.0 / 128.0
"""Bytes a number that FP8 dispatch adds: a fp32 scale for 128 numbers (DeepSeek-V3, arXiv 2412.19437 section 3.3)."""


COPIES_ONCE = ("deepep", "hybridep")
"""Dispatchers that send a token once to each rank, whichever of its experts it goes to."""


@dataclass(frozen=True)
class Routing:
    """Token counts of one MoE layer and micro batch, on one rank.

    `sent`: token copies that the rank sends to experts. `taken`: copies that arrive for the experts of its ep rank, which etp ranks
    share. `experts`: local experts; `each`: copies per expert, of all etp ranks together. `load`: `taken` over its mean.
    `dispatch`, `combine`: bytes of the whole call, as nccl-tests counts them, to the experts and back. Gradients of both have
    `combine` bytes.
    """

    sent: float
    taken: float
    experts: int
    each: int
    load: float
    dispatch: float
    combine: float


def routing(job: Job, tokens: int, width: float) -> Routing:
    """Routing of `tokens` of one rank, `width` bytes a number.

    The busiest rank sets the pace. Its load is `runtime.moe_imbalance` times the mean, or follows from `runtime.moe_skew`; it is at
    most `runtime.moe_capacity`, and exactly that if experts are padded.
    """
    model, plan, runtime = job.model, job.plan, job.runtime
    all_experts, top_k = model.experts or 1, model.top_k
    load = runtime.moe_imbalance
    if runtime.moe_skew is not None:
        load = busiest(all_experts, top_k, plan.ep, runtime.moe_skew, runtime.moe_seed)
    load = min(load, runtime.moe_capacity or math.inf)
    if runtime.moe_pad_to_capacity:
        load = runtime.moe_capacity or load
    if runtime.moe_dispatch == "allgather":
        sent, counted = float(tokens), float(tokens * plan.ep)
    elif runtime.moe_dispatch in COPIES_ONCE:
        sent = counted = tokens * load * copies_of(job)
    else:
        sent = counted = tokens * load * float(top_k)
    received = tokens * top_k * load
    local = all_experts // plan.ep
    each = max(1, round(received * plan.etp / local))
    there = 1.0 + SCALE if runtime.moe_dispatch_fp8 else width
    return Routing(sent, received, local, each, load, counted * model.expert_hidden * there, counted * model.expert_hidden * width)


def copies_of(job: Job) -> float:
    """Mean number of copies of a token that DeepEP sends over the slowest link: one per rank, or one per scale-up domain across
    them."""
    model, plan = job.model, job.plan
    domains = math.ceil(plan.ep * plan.etp / job.cluster.domain)
    places = domains if domains > 1 else plan.ep
    part = model.router_top_groups / model.router_groups
    return distinct(max(1.0, places * part), (model.experts or 1) * part, model.top_k)


def busiest(experts: int, chosen: int, ranks: int, skew: float, seed: int) -> float:
    """Load of the busiest of `ranks` over the mean, if an expert's popularity falls as 1 / place^skew with places drawn from
    `seed`.

    A token goes to `chosen` different experts, so no expert gets more than 1 / `chosen` of the copies; the excess goes to the
    others in proportion. Zipf's law over experts is assumed; skew 0 is even.
    """
    order = list(range(experts))
    Draws(seed).shuffle(order)
    popularity = -skew * np.log1p(order)  # logarithms, because powers of a large skew underflow
    share, uncapped, most = np.zeros(experts), np.ones(experts, np.bool_), 1.0 / chosen
    while uncapped.any():
        weight = np.exp(popularity[uncapped] - popularity[uncapped].max())
        share[uncapped] = (1.0 - most * np.count_nonzero(~uncapped)) * weight / weight.sum()
        over = uncapped & (share > most)
        if not over.any():
            break
        share[over] = most
        uncapped &= ~over
    return float(share.reshape(ranks, -1).sum(axis=1).max() * ranks)


def distinct(places: float, experts: float, chosen: int) -> float:
    """Mean number of `places` that have at least one of `chosen` different experts, if experts are spread evenly."""
    experts_per_place = experts / places
    missed = 1.0
    for pick in range(chosen):
        missed *= max(0.0, (experts - experts_per_place - pick) / (experts - pick))
    return places * (1.0 - missed)
