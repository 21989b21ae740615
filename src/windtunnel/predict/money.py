"""Step time -> tokens a day, days, dollars, joules."""

from __future__ import annotations

from windtunnel.spec.job import Job

GPU_SHARE_OF_NODE_POWER = 0.6
"""GPUs' share of a node's power where the node's own is not stated; DGX H100: 8 x 700 W of 10.2 kW (NVIDIA's datasheet)."""

DAY = 86400.0


def money(job: Job, step: float, tokens: float) -> dict[str, float | None]:
    """Fields of a Prediction that follow from the step time. What the job or cluster does not state stays None."""
    cluster = job.cluster
    power = _power(job)
    energy = power * step if power is not None else None
    cost = cluster.gpus * cluster.price_per_gpu_hour * step / 3600.0 if cluster.price_per_gpu_hour is not None else None
    steps = job.tokens / tokens if job.tokens is not None else None
    return {
        "energy_j_per_step": energy, "cost_per_step": cost, "tokens_per_day": tokens / step * DAY,
        "days": steps * step / DAY if steps is not None else None,
        "cost": cost * steps if cost is not None and steps is not None else None,
        "energy_j": energy * steps if energy is not None and steps is not None else None,
    }


def _power(job: Job) -> float | None:
    """Watts of the whole cluster under load, cooling included."""
    node = job.cluster.node
    if node.power_w is not None:
        return job.cluster.gpus / node.gpus * node.power_w * job.cluster.pue
    if node.gpu.power_w is not None:
        return job.cluster.gpus * node.gpu.power_w / GPU_SHARE_OF_NODE_POWER * job.cluster.pue
    return None
