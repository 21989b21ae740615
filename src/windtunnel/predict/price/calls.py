"""Seconds of communication calls: each (call, axis, bytes) of a job by the network's closed form, or measured by an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from windtunnel.network import CommEstimate, Group, collective, group
from windtunnel.network.nccl.settings import Settings, parse_settings
from windtunnel.predict.price.calibrated import call_factor
from windtunnel.predict.price.dispatch import price_dispatch
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Comm


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
