"""Seconds for every row of a workload: device time from `compute`, transfers from `network`, host time from the runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from windtunnel.compute import Estimate, Factors, Profile, estimate, in_modules
from windtunnel.network import CommEstimate, Group, collective, group
from windtunnel.network.nccl.settings import Settings, parse_settings
from windtunnel.predict.hosts import host_seconds
from windtunnel.predict.jitter import slowdown
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Comm, Kind, Workload

Array = npt.NDArray[np.float64]


@dataclass
class Network:
    """Prices communication calls of one job, each distinct one once."""

    job: Job
    groups: dict[Axis, Group] = field(default_factory=dict)
    prices: dict[tuple[Comm, Axis, float], CommEstimate] = field(default_factory=dict)

    @cached_property
    def settings(self) -> Settings:
        """NCCL's variables of the job."""
        return parse_settings(self.job.runtime.nccl, "runtime.nccl")

    def group(self, axis: Axis) -> Group:
        """The group of ranks behind an axis."""
        if axis not in self.groups:
            self.groups[axis] = group(self.job, axis)
        return self.groups[axis]

    def price(self, call: Comm, axis: Axis, size: float) -> CommEstimate:
        """Estimate of one call with a total buffer of `size` bytes."""
        key = (call, axis, size)
        if key not in self.prices:
            self.prices[key] = collective(self.job.cluster, call, size, self.group(axis), settings=self.settings)
        return self.prices[key]


@dataclass(frozen=True)
class Costs:
    """Columns over the rows of the workload: device `seconds`, `host` seconds to enqueue, and where the seconds come from.

    `data`: seconds at the begin of the step for which the first stage waits for its batch.
    """

    seconds: Array
    host: Array
    estimate: Estimate
    network: Network
    slowdown: float
    data: float = 0.0


def price(workload: Workload, factors: Factors | None = None, profile: Profile | None = None) -> Costs:
    """Cost of every row; `factors` stand in for the stored training factors, `profile` for the curves wherever it has been.

    Compute seconds carry the wait for the slowest GPU of the job (`Costs.slowdown`), unless the job says which GPUs are slow.
    """
    job, ops = workload.job, workload.ops
    runtime = job.runtime
    if profile is None:
        estimated = estimate(ops, job.cluster.gpu, runtime, factors)
    else:
        kernels = estimate(ops, job.cluster.gpu, runtime, factors, profile.kernels)
        estimated = in_modules(workload, kernels, profile.modules)
    slower = 1.0 if job.unequal is not None and job.unequal.names_speeds else slowdown(job.cluster)
    seconds = estimated.seconds * slower
    network = Network(job)
    comm = ops.kind == Kind.COMM
    for row in np.nonzero(comm)[0]:
        seconds[row] = network.price(Comm(int(ops.comm[row])), Axis(int(ops.axis[row])), float(ops.bytes[row])).seconds
    host = host_seconds(workload) / job.cluster.node.host_speed
    if runtime.launch_blocking:  # no launch is ahead of the device: its cost stands before the kernel
        seconds, host = seconds + host, np.zeros(len(ops))
    return Costs(seconds, host, estimated, network, slower)
