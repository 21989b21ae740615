"""Memory outside of the GPUs: the host link, a node's storage and expansion, and a pool that nodes share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.base.quantities import LinkBandwidth, NodeBandwidth, OwnedBandwidth, PortBandwidth, Seconds, Size
from windtunnel.spec.common import Flag, Noun, PositiveInt

Place = Literal["host", "nvme", "expansion", "pool"]
"""Places for offloaded bytes: the node's DRAM, storage or memory expansion, or the cluster's pool."""


class HostLink(Noun):
    """The link between GPUs and their host's memory: PCIe lanes of one switch, or the chip-to-chip link of one CPU."""

    kind: Literal["pcie", "c2c"] = "pcie"
    bandwidth: LinkBandwidth = Field(description="line rate of one link each way")
    gpus: PositiveInt = Field(default=1, description="GPUs that share one link")
    source: str = ""


class Storage(Noun):
    """Solid-state disks of one node, all together."""

    read: NodeBandwidth
    write: NodeBandwidth
    capacity: Size = Field(gt=0)
    latency: Seconds = 1e-4
    source: str = ""


class Expansion(Noun):
    """Memory that a node has beside its DRAM (CXL), reached over the host link."""

    bandwidth: NodeBandwidth
    capacity: Size = Field(gt=0)
    latency: Seconds = 1e-6
    source: str = ""


class MemoryPool(Noun):
    """A memory that all nodes share (ASTRA-sim 2.0, ISPASS 2023): memory groups behind switches outside the nodes, and a separate
    fabric inside each node. Bytes are spread over all groups.

    With `in_switch_collectives` the switches gather a load of sharded parameters and reduce a store of gradients: data for all
    ranks is read from memory once and copied in the switches.
    """

    ports: PositiveInt = Field(description="remote memory groups")
    bandwidth: PortBandwidth = Field(description="bandwidth of one group, each way")
    gpu_bandwidth: OwnedBandwidth = Field(description="bandwidth of the pool's fabric inside a node, per GPU and each way")
    node_bandwidth: NodeBandwidth | None = Field(None, description="bandwidth of a node to the pool; default: that of all its GPUs")
    latency: Seconds = 2e-6
    capacity: Size = Field(gt=0, description="capacity of all groups together")
    in_switch_collectives: Flag = False
    source: str = ""
