"""Watts of a cluster during a step: GPUs by what they do, the rest of the nodes, network, storage, losses and cooling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

from windtunnel.base.dataclasses import asdict, dataclass, fields
from windtunnel.compute.power import GpuWatts, watts_of
from windtunnel.predict.category import OVERLAP_SLOWDOWN, SLOWEST_GPU, STEP_PARTS, Category, StepGroup
from windtunnel.spec.machine import Cluster, Node, NodeDraw

GPU_SHARE_OF_NODE_POWER = 0.6
"""GPUs' share of a node's stated maximum, if it states none; DGX H100: 8 x 700 W of 10.2 kW (NVIDIA's datasheet)."""

REST_SHARE = 0.6
"""What a node beside its GPUs draws while it trains, as a share of its stated maximum less the GPUs', for nodes that do not state
their `draw`; the parts that catalog/nodes/dgx-h100.toml lists, over that rest."""

SPREAD = (Category.RECOMPUTE.key, OVERLAP_SLOWDOWN.key)
"""Parts of a breakdown that are matrix products and kernels bound by memory in the proportion of the rest of the step."""


@dataclass(frozen=True)
class StepShares:
    """What the mean GPU does: shares of the step that add up to 1, named as in `spec.power.GpuDraw`."""

    tensor: float
    memory: float
    communicating: float
    waiting: float
    static: float


@dataclass(frozen=True)
class ClusterWatts:
    """Mean watts of the whole cluster by part; `hosts` is all of a node but its GPUs, `supplies` the loss of its power supplies,
    `cooling` all that the building adds (PUE)."""

    gpus: float
    hosts: float
    supplies: float
    network: float
    storage: float
    cooling: float

    @property
    def total(self) -> float:
        return self.gpus + self.hosts + self.supplies + self.network + self.storage + self.cooling


@dataclass(frozen=True)
class NetworkParts:
    """Switches and links of a scale-out fabric; `tiers` is 0 where no GPU needs it."""

    tiers: int
    switches: float
    links: float
    optics: float


def step_shares(stages: Sequence[Mapping[str, float]]) -> StepShares:
    """Shares of the mean GPU, from the breakdowns of all stages (which hold as many GPUs each)."""
    sums = dict.fromkeys((field.name for field in fields(StepShares)), 0.0)
    for stage in stages:
        whole = sum(stage.values()) or 1.0
        for key, seconds in stage.items():
            if key not in SPREAD:
                sums[_doing(key)] += seconds / whole
        tensor = stage.get(Category.MATMUL.key, 0.0) + stage.get(Category.ATTENTION.key, 0.0)
        memory = stage.get(Category.MEMORY_BOUND.key, 0.0)
        share = tensor / (tensor + memory) if tensor + memory > 0.0 else 1.0
        spread = sum(stage.get(key, 0.0) for key in SPREAD) / whole
        sums["tensor"] += share * spread
        sums["memory"] += (1.0 - share) * spread
    total = sum(sums.values()) or 1.0
    return StepShares(**{name: value / total for name, value in sums.items()})


@cache
def _doing(key: str) -> str:
    """What the GPU does during a part of the breakdown."""
    if key in (Category.MATMUL.key, Category.ATTENTION.key):
        return "tensor"
    if key in (Category.MEMORY_BOUND.key, Category.OPTIMIZER.key):
        return "memory"
    part = STEP_PARTS.get(key)
    if part is None or key == SLOWEST_GPU.key or part.group in (StepGroup.WAITING, StepGroup.BUBBLE):
        return "waiting"
    return "communicating" if part.group in (StepGroup.COMMUNICATION, StepGroup.OFFLOAD) else "static"


def mean_watts(watts: GpuWatts, shares: StepShares) -> float:
    """Mean watts of one GPU over a step."""
    return sum((share * float(getattr(watts, name)) for name, share in asdict(shares).items()), 0.0)


def gpu_watts(cluster: Cluster, shares: StepShares) -> float | None:
    """Mean watts of one GPU of the cluster; None if neither it nor its node states a power."""
    gpu = cluster.gpu
    if gpu.power_w is None:
        if cluster.node.power_w is None:
            return None
        gpu = gpu.model_copy(update={"power_w": cluster.node.power_w * GPU_SHARE_OF_NODE_POWER / cluster.node.gpus})
    watts = watts_of(gpu)
    return None if watts is None else mean_watts(watts, shares)


def draw_of(node: Node) -> NodeDraw:
    """The stated draw of a node, or a share of its stated maximum less that of its GPUs."""
    if node.draw is not None:
        return node.draw
    most = node.power_w if node.power_w is not None else (node.gpu.power_w or 0.0) * node.gpus / GPU_SHARE_OF_NODE_POWER
    gpus = (node.gpu.power_w or most * GPU_SHARE_OF_NODE_POWER / node.gpus) * node.gpus
    efficiency = float(NodeDraw.model_fields["psu_efficiency"].default)
    return NodeDraw(host_w=max(0.0, most * efficiency - gpus) * REST_SHARE, psu_efficiency=efficiency)


def node_rest(node: Node, gpu: float) -> float:
    """Watts of a node beside its GPUs, before its power supplies, where a GPU draws `gpu` watts in the mean."""
    draw = draw_of(node)
    load = gpu / node.gpu.power_w if node.gpu.power_w else 1.0
    return draw.host_w + draw.switches_w + draw.nic_w * (node.nic.count if node.nic else 0) + draw.fans_w * min(1.0, load)


def network_of(cluster: Cluster) -> NetworkParts:
    """Switches, links and transceivers of the fabric between the nodes in use, as a Clos network of switches of `ports` ports.

    With rails the NICs of one index on all nodes share a tree, else all NICs do. A tree of t tiers has 1 + 2 (t - 1) ports and t
    links a NIC; oversubscription thins all but the first. The transceiver at the NIC counts with the node.
    """
    node, fabric = cluster.node, cluster.fabric
    if cluster.gpus <= cluster.domain or node.nic is None or fabric.kind == "none":
        return NetworkParts(0, 0.0, 0.0, 0.0)
    nodes = cluster.gpus / node.gpus
    nics = nodes * node.nic.count
    leaves, ports = (nodes if fabric.topology in ("rail", "rail_only") else nics), fabric.draw.ports
    tiers = 1 if leaves <= ports else 2 if leaves <= ports**2 / 2 else 3
    upper = (tiers - 1) / fabric.oversubscription
    return NetworkParts(tiers, math.ceil(nics * (1 + 2 * upper) / ports), nics * (1 + upper), nics * (1 + 2 * upper))


def cluster_watts(cluster: Cluster, gpu: float) -> ClusterWatts:
    """Mean watts of the cluster by part, where a GPU draws `gpu` watts in the mean. A share of a node counts as such."""
    nodes = cluster.gpus / cluster.node.gpus
    gpus, hosts = gpu * cluster.gpus, node_rest(cluster.node, gpu) * nodes
    supplies = (gpus + hosts) * (1.0 / draw_of(cluster.node).psu_efficiency - 1.0)
    parts, draw = network_of(cluster), cluster.fabric.draw
    network = parts.switches * draw.switch_w + parts.optics * draw.optic_w
    storage = cluster.economics.storage_w_per_gpu * cluster.gpus
    return ClusterWatts(
        gpus, hosts, supplies, network, storage, (gpus + hosts + supplies + network + storage) * (cluster.pue - 1.0)
    )
