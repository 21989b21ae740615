"""What the closed form knows of a fabric: which nodes are near, how thin the links out of them are, and how far the others are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """Consecutive nodes that share their first switches, and those that share a pod or a group of switches."""

    leaf_nodes: int
    pod_nodes: int
    oversubscription: float
    """Rate of a leaf's NICs over that of its links to other switches."""
    pod_oversubscription: float
    """The same of a pod."""
    near: float
    """Seconds of links between switches, for a message that leaves a leaf."""
    far: float
    """The same for one that leaves a pod."""
