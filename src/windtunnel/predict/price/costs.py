"""Seconds for every row of a workload: device time from `compute`, calls from `network`, host time from the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.compute import Estimate, Factors, Profile, estimate, in_modules
from windtunnel.compute.power import watts_of
from windtunnel.predict.price.calibrated import kernel_factors
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.predict.price.host import host_seconds
from windtunnel.spec import GPU, Cluster
from windtunnel.spec.runtime import Runtime
from windtunnel.workload import Axis, Comm, Kind, Workload
from windtunnel.workload.ops import OpTable

TENSOR = (Kind.GEMM, Kind.GROUPED_GEMM, Kind.ATTENTION, Kind.ATTENTION_BACKWARD)
"""Kinds whose time goes with the clock."""


@dataclass(frozen=True)
class Costs:
    """Columns over the rows of the workload: device `seconds`, `host` seconds to enqueue, and the provenance of the seconds.

    `calls` prices communication, `call_of` has the call of each communication row. `slowdown`: the factor on computation for the
    slowest GPU. `data`: seconds for which the first stage waits for its batch at the start of the step.
    """

    seconds: Floats
    host: Floats
    estimate: Estimate
    calls: CallBook
    call_of: dict[int, CallKey]
    slowdown: float
    data: float = 0.0


def price(workload: Workload, factors: Factors | None = None, profile: Profile | None = None) -> Costs:
    """Cost of every row; `factors` replace the stored training factors, `profile` the curves wherever it has measurements.

    Compute seconds carry the wait for the slowest GPU of the job (`Costs.slowdown`), unless the job says which GPUs are slow.
    """
    job, ops = workload.job, workload.ops
    runtime = job.kernel_runtime
    if profile is None:
        return _with_calls(workload, estimate(ops, job.cluster.gpu, runtime, factors), CallBook(job))
    kernels = estimate(ops, job.cluster.gpu, runtime, factors, profile.kernels)
    return _with_calls(workload, in_modules(workload, kernels, profile.modules), CallBook(job))


def price_together(workloads: Sequence[Workload], books: Sequence[CallBook]) -> list[Costs]:
    """The `price` of each, with calls as its book has them; rows of workloads with the same GPU and runtime are estimated in one
    table."""
    alike: dict[tuple[GPU, Runtime], list[int]] = {}
    for place, workload in enumerate(workloads):
        alike.setdefault((workload.job.cluster.gpu, workload.job.kernel_runtime), []).append(place)
    out: dict[int, Costs] = {}
    for (gpu, runtime), places in alike.items():
        whole = estimate(OpTable.join([workloads[place].ops for place in places]), gpu, runtime)
        begin = 0
        for place in places:
            end = begin + len(workloads[place].ops)
            out[place] = _with_calls(workloads[place], whole.take(slice(begin, end)), books[place])
            begin = end
    return [out[place] for place in range(len(workloads))]


def _with_calls(workload: Workload, estimated: Estimate, calls: CallBook) -> Costs:
    """The cost of every row, from the seconds of its kernels: with calls and the host."""
    job, ops = workload.job, workload.ops
    slower = 1.0 if job.unequal is not None and job.unequal.names_speeds else slowdown(job.cluster)
    seconds = estimated.seconds * slower
    if job.calibration is not None:
        seconds = seconds * kernel_factors(ops, job.calibration)
    if job.cluster.gpu.power_cap_w is not None or job.cluster.gpu.clock_lock is not None:
        seconds = seconds * _stretch(ops, job.cluster.gpu)
    call_of = dict(calls_of(ops))
    for row, key in call_of.items():
        seconds[row] = calls.price_of(key).seconds
    host = host_seconds(workload, calls.group) / job.cluster.node.host_speed
    if job.calibration is not None:
        host *= job.calibration.host
    if job.runtime.launch_blocking:  # no launch runs ahead of the device: its cost comes before the kernel
        seconds, host = seconds + host, np.zeros(len(ops))
    return Costs(seconds, host, estimated, calls, call_of, slower)


def _stretch(ops: OpTable, gpu: GPU) -> Floats:
    """Time of every row [rows] under the GPU's power cap and clock, over that without."""
    watts = watts_of(gpu)
    tensor, memory = (1.0 / (gpu.clock_lock or 1.0), 1.0) if watts is None else (watts.tensor_stretch, watts.memory_stretch)
    tensor = tensor if gpu.sustained_rate is None else 1.0  # the rate was measured under them
    return np.where(np.isin(ops.kind, TENSOR), tensor, memory).astype(np.float64)


_COMMS, _AXES = {int(one): one for one in Comm}, {int(one): one for one in Axis}
"""By number: faster than to ask the class for each row."""


def calls_of(ops: OpTable) -> Iterator[tuple[int, CallKey]]:
    """(row, call) of every communication row."""
    rows = np.nonzero(ops.kind == Kind.COMM)[0]
    for row, comm, axis, size in zip(
        rows.tolist(), ops.comm[rows].tolist(), ops.axis[rows].tolist(), ops.bytes[rows].tolist(), strict=True
    ):
        yield row, CallKey(_COMMS[comm], _AXES[axis], size)


def expected_maximum(ranks: int) -> float:
    """Expected largest of `ranks` standard normal draws, in sigmas; Blom 1958: the quantile at (n - 0.375) / (n + 0.25)."""
    if ranks < 2:
        return 0.0
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def slowdown(cluster: Cluster) -> float:
    """Expected factor on compute time of a step that ends with the slowest of the cluster's GPUs.

    Good GPUs are normal with `gpu_spread`; each node is slow with probability `slow_nodes`, and one slow node sets the pace.
    """
    nodes = -(-cluster.gpus // cluster.node.gpus)
    good = 1.0 + cluster.gpu_spread * expected_maximum(cluster.gpus)
    any_slow = 1.0 - (1.0 - cluster.slow_nodes) ** nodes
    return (1.0 - any_slow) * good + any_slow * max(good, cluster.slow_node_factor)
