"""The shape of a communication group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windtunnel.network.grids.spans import GridGroup

Span = Literal["device", "node", "leaf", "pod", "core"]


@dataclass(frozen=True)
class Group:
    """Shape of one communication group. A domain is a node, or a scale-up domain that spans several."""

    ranks: int
    """GPUs of the group."""
    per_node: int
    """Most GPUs of the group in one domain."""
    nodes: int
    """Domains that the group spans."""
    sharing: int = 1
    """Groups of the same axis that send through the NICs of one domain at the same time."""
    gpus_per_node: int = 8
    """GPUs in a domain."""
    span: Span = "node"
    """The farthest switch level that the group crosses."""
    per_leaf: float = 0.0
    """Domains of the group below one leaf (0: as many as fit). Of a pair: how many of the GPUs there send for each one whose
    message leaves the leaf."""
    per_pod: float = 0.0
    """The same of a pod."""
    grid: GridGroup | None = None
    """Its place on a machine whose accelerators are joined along dimensions."""
