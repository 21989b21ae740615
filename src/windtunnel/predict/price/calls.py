"""Seconds of communication calls: each (call, axis, bytes) of a job by the network's closed form, or measured by an engine.

Seconds of tokens' way to experts and back by DeepEP's kernels, where they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import hypot, isclose
from typing import NamedTuple

import numpy as np

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.network import CommEstimate, Group, collective, group
from windtunnel.network.closed.cost import CARRIED, MOST_RANKS, SCALED, SMS, choose_dispatch, dispatch_seconds
from windtunnel.network.nccl.settings import Settings, parse_settings
from windtunnel.predict.price.calibrated import call_factor
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Comm
from windtunnel.workload.blocks.routing import copies_of, routing


class CallKey(NamedTuple):
    """A communication call over the ranks of an axis, with a total buffer of `size` bytes."""

    comm: Comm
    axis: Axis
    size: float


@dataclass(frozen=True)
class CallBook:
    """Estimates of the calls of `job`.

    An estimate depends only on the job and the call. `measured`: seconds from a network engine, which replace the closed form's.
    """

    job: Job
    measured: Mapping[CallKey, float] = field(default_factory=dict)
    _groups: dict[Axis, Group] = field(default_factory=dict, repr=False, compare=False)
    _known: dict[CallKey, CommEstimate] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def settings(self) -> Settings:
        """NCCL's environment variables of the job."""
        return parse_settings(self.job.runtime.nccl, "runtime.nccl")

    def group(self, axis: Axis) -> Group:
        """The group of ranks behind an axis."""
        if axis not in self._groups:
            self._groups[axis] = group(self.job, axis)
        return self._groups[axis]

    def price(self, comm: Comm, axis: Axis, size: float) -> CommEstimate:
        """Estimate of one call."""
        return self.price_of(CallKey(comm, axis, size))

    def price_of(self, key: CallKey) -> CommEstimate:
        """Estimate of the call with this key."""
        estimate = self._known.get(key)
        if estimate is None:
            estimate = self._known[key] = self._estimate(key)
        if key not in self.measured:
            return estimate
        seconds = self.measured[key]
        scale = estimate.seconds / seconds if seconds > 0.0 else 1.0
        return replace(estimate, seconds=seconds, bus_bandwidth=estimate.bus_bandwidth * scale)

    def _estimate(self, key: CallKey) -> CommEstimate:
        group = self.group(key.axis)
        estimate = collective(self.job.cluster, key.comm, key.size, group, settings=self.settings)
        if key.comm is Comm.ALL_TO_ALL and key.axis is Axis.EP:
            estimate = price_dispatch(self.job, group, key.size, estimate)
        factor = call_factor(key.axis, self.job.calibration)
        if factor == 1.0:
            return estimate
        return replace(estimate, seconds=estimate.seconds * factor, bus_bandwidth=estimate.bus_bandwidth / factor)

    def with_groups(self, groups: Mapping[Axis, Group]) -> CallBook:
        """A book of the same job with these groups behind their axes."""
        return replace(self, _groups=dict(groups), _known={})

    def with_measured(self, seconds: Mapping[CallKey, float]) -> CallBook:
        """This book with an engine's `seconds` for some calls."""
        return replace(self, measured={**self.measured, **seconds})


@dataclass(frozen=True)
class SlowestBook(CallBook):
    """Estimates for a group of several kinds of ranks: those of the kind for which a call takes longest."""

    kinds: tuple[CallBook, ...] = ()

    def _estimate(self, key: CallKey) -> CommEstimate:
        return max((kind.price_of(key) for kind in self.kinds), key=lambda estimate: estimate.seconds)


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
