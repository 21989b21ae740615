"""Interface of an engine, which starts agents for the driver, and the agent's command line.

Engine for agents that are started by others, such as the pods of a JobSet or a person: the driver waits for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError

PROGRAM = (sys.executable, "-m", "windtunnel.fleet.agent")
SECRETS = "WINDTUNNEL_FLEET_SECRETS"
"""Environment variable with the path of the file that contains the agents' token and certificate."""
_PRIVATE = ("WINDTUNNEL_FLEET_TOKEN",)
"""Variables of the driver that agents do not get: their secrets are in the file."""


@dataclass(frozen=True)
class AgentCommand:
    """How to start an agent. SpecError if others may read the secrets file."""

    driver: str
    """HOST:PORT."""
    secrets: Path
    """A file that only its owner can read, in a folder that all nodes can access."""
    folder: Path | None = None
    """Folder of the run."""
    program: tuple[str, ...] = PROGRAM

    def __post_init__(self) -> None:
        try:
            mode = self.secrets.stat().st_mode
        except OSError as error:
            raise SpecError("secrets", str(self.secrets), "a file with the agents' secrets", f"{error.strerror}.") from error
        if mode & 0o077:
            hint = f"Type: chmod 600 {self.secrets}"
            raise SpecError("secrets", f"{self.secrets} with mode {mode & 0o777:o}", "a file that only its owner can read", hint)

    def of(self, node: str) -> list[str]:
        """Argument list of the agent of a node; contains no secret."""
        folder = ["--folder", str(self.folder)] if self.folder is not None else []
        return [*self.program, "--driver", self.driver, "--node", node, "--secrets", str(self.secrets), *folder]

    def variables(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The agent's environment: the given one or that of this process, without secrets."""
        given = os.environ if environment is None else environment
        return {name: value for name, value in given.items() if name not in _PRIVATE} | {SECRETS: str(self.secrets)}


class Engine(Protocol):
    """Starts one agent per node. An agent survives the driver: the engine of a restarted driver finds the agents of the previous
    one, so that `is_running` and `stop` work on them. WindtunnelError if the engine does not respond.
    """

    def acquire(self, count: int) -> tuple[str, ...]:
        """Names of `count` nodes on which agents can be started; the same ones when called again."""

    def start(self, nodes: Sequence[str]) -> None:
        """Starts an agent on each node and replaces a running one. Does not wait until it connects."""

    def stop(self, node: str) -> None:
        """Ends the agent of a node and everything that it started; no effect if none runs."""

    def is_running(self, node: str) -> bool:
        """Whether the agent of the node runs, as far as the engine knows. It may still be unresponsive."""

    def place(self, node: str) -> str | None:
        """The machine of the node, by the engine's name; None if unknown."""

    def close(self) -> None:
        """Ends all agents and releases the nodes."""


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
