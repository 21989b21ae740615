"""The rates of a job's machine, each with the job on which it is `k` times as fast.

Latencies are rates too: `k` times as fast is a `k`-th of their seconds. Links are as fast as calls find them (`Achieved`), with
NCCL's choices as they are: with another bandwidth on the data sheet NCCL also chooses other channels, in steps, and a NIC may
outrun its PCIe slot. Start-up times inside kernels belong to no rate; `search.sensitivity` finds them as the rest of all kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windtunnel.search.change import Change, value_of
from windtunnel.spec import GPU, Job
from windtunnel.spec.calibration import PATHS, Calibration
from windtunnel.spec.machine.cluster import Achieved

Faster = Callable[[float], Job]
"""The job with a rate times k."""

KERNELS = tuple(path for path in PATHS if path.startswith("kernels."))
CALLS = tuple(path for path in PATHS if path.startswith("calls."))


@dataclass(frozen=True)
class Rate:
    """A rate by its key, in words, with what it belongs to: kernels, calls or host."""

    name: str
    words: str
    part: str
    faster: Faster


def rates_of(job: Job) -> tuple[Rate, ...]:
    """The rates that the job's machine states: those of its number formats, memory, links, latencies, and the host."""
    gpu, node = job.cluster.gpu, job.cluster.node
    listed = [
        Rate(f"tensor_{name}", f"{name} products, FLOP/s", "kernels", _peak(job, name)) for name in gpu.peak if _computes(job, name)
    ]
    listed.append(Rate("hbm", "GPU memory, B/s", "kernels", _field(job, "cluster.node.gpu.memory_bandwidth")))
    if job.cluster.gpus > 1 and node.domain > 1:
        listed.append(Rate("scale_up", f"{node.scale_up.kind} links, B/s", "calls", _with_faster(job, INSIDE)))
        listed.append(Rate("scale_up_latency", "a step from GPU to GPU inside", "calls", _with_faster(job, ("inside_hop",), -1)))
    if job.cluster.gpus > node.domain and node.nic is not None:
        listed.append(Rate("nic", "NICs and fabric, B/s", "calls", _with_faster(job, ("across_rate",))))
        listed.append(Rate("nic_latency", "a step from GPU to GPU across", "calls", _fewer_steps_across(job)))
    if job.cluster.gpus > 1:
        listed.append(Rate("call_launch", "launch of a call on the GPU", "calls", _with_faster(job, ("launch",), -1)))
    if node.host_link is not None:
        listed.append(Rate("host_link", "link to the host, B/s", "calls", _field(job, "cluster.node.host_link.bandwidth")))
    listed.append(Rate("host", "host, launches a second", "host", _field(job, "cluster.node.host_speed")))
    return tuple(listed)


def seconds_faster(job: Job, paths: tuple[str, ...]) -> Faster:
    """The job whose seconds under these paths of a calibration are a k-th."""

    def faster(k: float) -> Job:
        calibration = job.calibration or Calibration()
        for path in paths:
            calibration = calibration.times(path, 1.0 / k)
        return job.model_copy(update={"calibration": calibration})

    return faster


def _computes(job: Job, name: str) -> bool:
    """Whether products of the job may run at the peak of a format: its own, 16 bits, and fp32 where something is kept in it."""
    runtime = job.runtime
    wide = "fp16" if runtime.weight_dtype == "fp16" else "bf16"
    return name in {runtime.precision, wide, "fp32", "tf32"}


def _peak(job: Job, name: str) -> Faster:
    def faster(k: float) -> Job:
        gpu: GPU = job.cluster.gpu
        tables = {field: {key: rate * (k if key == name else 1.0) for key, rate in getattr(gpu, field).items()} for field in TABLES}
        return Change((("cluster.node.gpu", gpu.model_copy(update=tables)),)).apply(job)

    return faster


TABLES = ("peak", "achievable")
"""Tables of rates by number format."""


def _field(job: Job, path: str) -> Faster:
    return lambda k: Change(((path, value_of(job, path) * k),)).apply(job)


INSIDE = ("inside_rate", "inside_ll_rate", "inside_ll128_rate")
"""Rates of a scale-up domain, by NCCL's protocol."""


def _with_faster(job: Job, names: tuple[str, ...], power: int = 1) -> Faster:
    """Factors of `Achieved` times k, or over it where they are times (`power` -1)."""

    def faster(k: float) -> Job:
        factors = job.cluster.achieved or Achieved(relative_error=None)
        update = {name: getattr(factors, name) * k**power for name in names}
        return Change((("cluster.achieved", factors.model_copy(update=update)),)).apply(job)

    return faster


def _fewer_steps_across(job: Job) -> Faster:
    """Steps across the fabric: what the constants say, the NIC's latency and the switches'."""

    def faster(k: float) -> Job:
        nic, fabric = job.cluster.node.nic, job.cluster.fabric
        fields = [("cluster.fabric.hop_latency", fabric.hop_latency / k)]
        fields += [("cluster.node.nic.latency", nic.latency / k)] if nic is not None else []
        return Change(tuple(fields)).apply(_with_faster(job, ("across_hop",), -1)(k))

    return faster
