"""Small clusters for the network tests, written out so that no catalogue entry can move a formula's test."""

from __future__ import annotations

from typing import Any

from windtunnel.spec import GPU, Cluster, Fabric, Job, Model, Nic, Node, Plan, Runtime, ScaleUp
from windtunnel.spec.runtime import Host

_GPUS = {
    "volta": ("150GB/s", 6, 3),
    "ampere": ("300GB/s", 12, 4),
    "hopper": ("450GB/s", 18, 5),
    "blackwell": ("900GB/s", 18, 5),
    "cdna3": ("448GB/s", 7, 5),
    "cdna4": ("537.6GB/s", 7, 5),
    "gaudi": ("262.5GB/s", 21, 4),
}
_OTHERS = {"cdna3": ("amd", "xgmi"), "cdna4": ("amd", "xgmi"), "gaudi": ("intel", "ethernet")}


def machine(
    generation: str = "ampere",
    gpus: int = 16,
    *,
    nics: int = 8,
    gbit: float = 200,
    domain: int = 8,
    node_gpus: int = 8,
    kind: str = "nvswitch",
    nvls: bool | None = None,
    link: float = 1.0,
    **fabric: Any,
) -> Cluster:
    """A cluster of nodes of one generation; `link` scales the NVLink rate. Other makers' GPUs come in their own full mesh."""
    rate, links, pcie = _GPUS[generation]
    vendor, kind = _OTHERS.get(generation, ("nvidia", kind))
    gpu = GPU(
        id=generation,
        name=generation,
        vendor=vendor,
        architecture=generation,
        peak={"bf16": "300TFLOP/s"},
        memory="80GiB",
        memory_bandwidth="2TB/s",
    )
    number = float(rate.removesuffix("GB/s")) * link
    scale_up = ScaleUp(
        kind=kind,
        size=domain,
        bandwidth=f"{number}GB/s per GPU each way",
        links=links,
        in_switch_reduction=generation in ("hopper", "blackwell") if nvls is None else nvls,
    )
    nic = Nic(count=nics, bandwidth=f"{gbit}Gb/s") if nics else None
    node = Node(
        id=f"node-{generation}-{gbit}-{link}",
        gpu=gpu,
        gpus=node_gpus,
        scale_up=scale_up,
        nic=nic,
        pcie_gen=pcie,
        cpu_vendor="intel",
    )
    table = {"id": "fabric", "kind": "infiniband", "efficiency": 0.95, "leaf_nodes": 32, "pod_nodes": 128} | fabric
    return Cluster(id=f"{generation}-{gpus}", node=node, fabric=Fabric(**table), gpus=gpus)


def job(cluster: Cluster, **plan: Any) -> Job:
    """A job with a 96-layer model on `cluster`; only the plan's sizes matter to groups."""
    model = Model(name="m", layers=96, hidden=12288, heads=96, ffn=49152, vocab=51200)
    return Job(
        model=model,
        plan=Plan(**{"global_batch": 4096, "seq": 2048} | plan),
        cluster=cluster,
        runtime=Runtime(framework="megatron", host=Host(launch="5us")),
    )
