"""Agents that somebody else starts, like a JobSet's pods or a person: the driver waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class WaitingEngine:
    """Nodes `node0`, `node1`, …; whoever starts agents gives them these names. Nothing is known of an agent but its heartbeats."""

    def acquire(self, count: int) -> tuple[str, ...]:
        return tuple(f"node{index}" for index in range(count))

    def start(self, nodes: Sequence[str]) -> None:
        """Does nothing: an agent that ends is started again where it runs."""

    def stop(self, node: str) -> None:
        """Does nothing: a node that is blocked gets no work."""

    def is_running(self, node: str) -> bool:
        return True

    def place(self, node: str) -> str | None:
        return None

    def close(self) -> None:
        """Does nothing: agents end when the driver lets them go."""
