"""Engine for agents that are started by others, such as the pods of a JobSet or a person: the driver waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class WaitingEngine:
    """Nodes `node0`, `node1`, …; agents must be started with these names. Heartbeats are the only information about an agent."""

    def acquire(self, count: int) -> tuple[str, ...]:
        return tuple(f"node{index}" for index in range(count))

    def start(self, nodes: Sequence[str]) -> None:
        """No effect: an agent that ends must be restarted where it runs."""

    def stop(self, node: str) -> None:
        """No effect: a blocked node gets no work."""

    def is_running(self, node: str) -> bool:
        return True

    def place(self, node: str) -> str | None:
        return None

    def close(self) -> None:
        """No effect: agents end when the driver releases them."""
