"""The machine of a dataset as a cluster: the required number of its devices, without a network."""

from __future__ import annotations

from windtunnel.records import About
from windtunnel.spec import GPU, Cluster, Host, Job, Runtime

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
