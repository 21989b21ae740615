"""From a step time to tokens per day, days, dollars and joules."""

from __future__ import annotations

import math
from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.spec.job import Job

GPU_SHARE_OF_NODE_POWER = 0.6
"""GPUs' share of a node's power, if the node states none; DGX H100: 8 x 700 W of 10.2 kW (NVIDIA's datasheet)."""

DAY = 86400.0


@dataclass(frozen=True)
class Bill:
    """Time, energy and price of a step, and of the whole run if the job states its tokens. None if the job or cluster states no
    input for it."""

    energy_j_per_step: float | None
    cost_per_step: float | None
    days: float | None
    cost: float | None
    energy_j: float | None


def bill(job: Job, step: float, tokens: float) -> Bill:
    """Dollars, joules and days of steps of `step` seconds and `tokens` tokens, without failures and restarts."""
    cluster = job.cluster
    power = _power(job)
    energy = power * step if power is not None else None
    cost = cluster.gpus * cluster.price_per_gpu_hour * step / 3600.0 if cluster.price_per_gpu_hour is not None else None
    steps = job.tokens / tokens if job.tokens is not None else None
    if steps is not None and not math.isfinite(steps * max(step, energy or 0.0, cost or 0.0)):
        raise SpecError("tokens", job.tokens, "a number of tokens whose time, energy and price are finite")

    def whole(each: float | None) -> float | None:
        return each * steps if each is not None and steps is not None else None

    days = whole(step)
    return Bill(energy, cost, days / DAY if days is not None else None, whole(cost), whole(energy))


def _power(job: Job) -> float | None:
    """Watts of the whole cluster under load, cooling included."""
    node = job.cluster.node
    if node.power_w is not None:
        return job.cluster.gpus / node.gpus * node.power_w * job.cluster.pue
    if node.gpu.power_w is not None:
        return job.cluster.gpus * node.gpu.power_w / GPU_SHARE_OF_NODE_POWER * job.cluster.pue
    return None
