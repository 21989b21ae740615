"""How many tokens go where: what a rank sends to experts, and what the experts on a rank take."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.base.rng import Draws
from windtunnel.spec.job import Job

SCALE = 4.0 / 128.0
"""Bytes a number that FP8 dispatch adds: a fp32 scale for 128 numbers (DeepSeek-V3, arXiv 2412.19437 section 3.3)."""


COPIES_ONCE = ("deepep", "hybridep")
"""Dispatchers that send a token once to each rank, whichever of its experts it goes to."""


@dataclass(frozen=True)
class Routing:
    """Of one MoE layer and micro batch, on one rank.

    `sent` token copies leave the rank for experts; `taken` copies arrive for the experts of its ep rank, which etp ranks share;
    `experts` local ones take `each`, the copies of all etp ranks together. `load` is taken over the mean. Sizes in bytes of the
    whole call as nccl-tests counts them: `dispatch` to the experts, `combine` back; their gradients travel with `combine` bytes.
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

    The busiest rank paces the others: `runtime.moe_imbalance` times the mean, or what `runtime.moe_skew` draws, at most
    `runtime.moe_capacity` of it, and just that where experts are padded.
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
        sent, whole = float(tokens), float(tokens * plan.ep)
    elif runtime.moe_dispatch in COPIES_ONCE:
        sent = whole = tokens * load * _targets(job)
    else:
        sent = whole = tokens * load * float(top_k)
    taken = tokens * top_k * load
    local = all_experts // plan.ep
    each = max(1, round(taken * plan.etp / local))
    there = 1.0 + SCALE if runtime.moe_dispatch_fp8 else width
    return Routing(sent, taken, local, each, load, whole * model.expert_hidden * there, whole * model.expert_hidden * width)


def _targets(job: Job) -> float:
    """Mean number of copies of a token that DeepEP puts on the slowest wire: one a rank, across scale-up domains one a domain."""
    model, plan = job.model, job.plan
    domains = math.ceil(plan.ep * plan.etp / job.cluster.node.domain)
    places = domains if domains > 1 else plan.ep
    part = model.router_top_groups / model.router_groups
    return distinct(max(1.0, places * part), (model.experts or 1) * part, model.top_k)


def busiest(experts: int, chosen: int, ranks: int, skew: float, seed: int) -> float:
    """Load of the busiest of `ranks` over the mean where an expert's popularity falls as 1 / place^skew, places drawn from `seed`.

    A token goes to `chosen` different experts, so none takes more than one token in `chosen` of the copies: what is above goes to
    the others in proportion. Zipf's law over experts is assumed; skew 0 is even.
    """
    order = list(range(experts))
    Draws(seed).shuffle(order)
    popularity = -skew * np.log1p(order)  # logarithms, for powers of a large skew underflow
    share, rest, most = np.zeros(experts), np.ones(experts, np.bool_), 1.0 / chosen
    while rest.any():
        weight = np.exp(popularity[rest] - popularity[rest].max())
        share[rest] = (1.0 - most * np.count_nonzero(~rest)) * weight / weight.sum()
        over = rest & (share > most)
        if not over.any():
            break
        share[over] = most
        rest &= ~over
    return float(share.reshape(ranks, -1).sum(axis=1).max() * ranks)


def distinct(places: float, experts: float, chosen: int) -> float:
    """Mean number of places that hold at least one of `chosen` different experts, spread evenly over `places`."""
    each = experts / places
    missed = 1.0
    for pick in range(chosen):
        missed *= max(0.0, (experts - each - pick) / (experts - pick))
    return places * (1.0 - missed)
