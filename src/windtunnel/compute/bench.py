"""The machine of a dataset: its GPU, and a cluster of the required number of them, without a network."""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.compute.fitted_gpu import gpu_of as fitted_gpu
from windtunnel.compute.kernel_file import load
from windtunnel.records import About
from windtunnel.spec import GPU, Cluster, Host, Job, Runtime, load_gpu
from windtunnel.spec.loading.files import names

OPERATORS = ("norm", "rmsnorm", "activation", "rope", "dropout_add", "cross_entropy")

ON_HOST = Host(
    launch=0.0,
    collective=0.0,
    linear=0.0,
    check=0.0,
    check_across=0.0,
    expert=0.0,
    mixture=0.0,
    graph=0.0,
    wait=0.0,
    slice=0.0,
    source="host and device are one: launches are part of the kernels' times",
)


def gpu_of(about: About) -> GPU:
    """The catalogue's GPU of that name, or one made from the dataset's own data sheet."""
    if about.gpu in names("gpus"):
        return load_gpu(about.gpu)
    sheet = about.datasheet
    peak = {key.removeprefix("peak."): f"{value!r}FLOP/s" for key, value in sheet.items() if key.startswith("peak.")}
    if not peak or not sheet.get("memory_bandwidth") or not sheet.get("memory"):
        raise SpecError(
            "about.gpu",
            about.gpu,
            "a GPU of `windtunnel catalog gpus`, or a dataset whose about.datasheet has peaks, memory_bandwidth and memory",
            "Add the GPU to the catalogue, or import with --gpu FILE.toml.",
        )
    table: dict[str, Any] = {
        "id": about.gpu,
        "name": about.device or about.gpu,
        "architecture": about.architecture or "unknown",
        "vendor": "other",
        "peak": peak,
        "memory": int(sheet["memory"]),
        "memory_bandwidth": f"{sheet['memory_bandwidth']!r}B/s",
        "source": "the dataset's own data sheet",
    }
    for name in ("l2", "sms"):
        if sheet.get(name):
            table[name] = int(sheet[name])
    try:
        return load_gpu(table)
    except WindtunnelError as error:
        raise SpecError("about.datasheet", dict(sheet), "figures of a GPU", f"{error}.") from error


def gpu_under(about: About, kernels: str) -> GPU:
    """The dataset's GPU with the curves of a file; that file describes it where it was fitted on it."""
    if load(kernels).id == about.gpu:
        return fitted_gpu(load(kernels), kernels)
    return gpu_of(about).model_copy(update={"kernels_from": kernels})


def bench(gpu: GPU, gpus: int = 1) -> Cluster:
    """A cluster of `gpus` equal GPUs. Their links are placeholders, because benchmarks do not communicate."""
    node = {"id": "bench", "gpu": gpu, "gpus": gpus, "scale_up": {"size": gpus, "bandwidth": "100GB/s per GPU each way"}}
    fabric = {"id": "none", "kind": "none", "topology": "none"}
    return Cluster.model_validate({"id": f"bench-{gpu.id}"[:64], "node": node, "fabric": fabric, "gpus": gpus, "slow_nodes": 0.0})


def on_host(runtime: Runtime) -> Runtime:
    """`runtime` for a device that is the host (a CPU), which launches nothing ahead.

    In eager mode an operator is one row over the bytes that it must move, whatever loops it runs; its curve includes them.
    """
    fused = {f"fused_{name}": True for name in OPERATORS} if runtime.launch == "eager" else {}
    return runtime.model_copy(update={"host": ON_HOST, **fused})


def is_cpu(about: About) -> bool:
    """Whether a dataset's device is a processor: the profiler names those so."""
    return about.gpu.startswith("cpu-")


def on_bench(job: Job, gpu: GPU, about: About) -> Job:
    """`job` on devices of the dataset `about` in place of its own machine, one for each model-parallel rank."""
    plan = job.plan.model_copy(update={"dp": None})
    runtime = on_host(job.runtime) if is_cpu(about) else job.runtime
    return job.model_copy(update={"cluster": bench(gpu, plan.tp * plan.cp * plan.pp), "plan": plan, "runtime": runtime})
