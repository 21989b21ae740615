"""Seconds of tokens' way to experts and back by DeepEP's kernels, where they were measured."""

from __future__ import annotations

from dataclasses import replace
from math import hypot, isclose

import numpy as np

from windtunnel.network import CommEstimate, Group
from windtunnel.network.closed.deepep import CARRIED, MOST_RANKS, SCALED, SMS, choose_dispatch, dispatch_seconds
from windtunnel.spec.job import Job
from windtunnel.workload.blocks.routing import copies_of, routing


def price_dispatch(job: Job, group: Group, size: float, estimate: CommEstimate) -> CommEstimate:
    """A call of `size` bytes of copies by DeepEP's kernels inside a scale-up domain. `estimate`, of the network alone, stands where
    another library carries them, a group spans domains, or no GPU of the architecture was measured.

    The SMs that the kernel holds are those of `runtime.moe_dispatch_sms`, else DeepEP's default.
    """
    cluster, runtime = job.cluster, job.runtime
    inside = 1 < group.ranks <= MOST_RANKS and group.nodes == 1
    chosen = choose_dispatch(cluster.gpu.id, cluster.gpu.architecture)
    if runtime.moe_dispatch != "deepep" or not inside or chosen is None or size <= 0.0:
        return estimate
    curves, measured = chosen
    narrow = runtime.moe_dispatch_fp8 and _goes_narrow(job, size)
    curve = curves["dispatch" if narrow else "combine"]
    tokens = size / (copies_of(job) * job.model.expert_hidden * (SCALED if narrow else runtime.compute_width))
    sms = float(SMS if runtime.moe_dispatch_sms is None else runtime.moe_dispatch_sms)
    out = size * (group.ranks - 1.0) / group.ranks
    one = [np.array([value]) for value in (sms, tokens, size, out)]
    seconds = float(dispatch_seconds(curve, one[0], one[1], one[2], one[3], cluster.node.scale_up.bandwidth)[0])
    own = measured == cluster.gpu.id
    return replace(
        estimate,
        seconds=seconds,
        algorithm="DeepEP",
        protocol=f"measured on {measured}",
        channels=round(sms),
        bus_bandwidth=out / seconds,
        latency=curve.start,
        provenance="modelled" if own else "transferred",
        relative_error=curve.error if own else hypot(curve.error, CARRIED),
        held=None,
    )


def _goes_narrow(job: Job, size: float) -> bool:
    """Whether `size` is what the job's tokens have on the way to experts, and not on the way back or as gradients."""
    plan = job.plan
    tokens = plan.micro_batch * (plan.seq // plan.cp)
    tokens = tokens // plan.tp if plan.sequence_parallel and plan.tp > 1 else tokens
    return isclose(size, routing(job, tokens, job.runtime.compute_width).dispatch, rel_tol=1e-6)
