"""What the driver asks of whoever starts agents, and the agent's command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from windtunnel.base.errors import SpecError

PROGRAM = (sys.executable, "-m", "windtunnel.fleet.agent")
SECRETS = "WINDTUNNEL_FLEET_SECRETS"
"""Variable with the path of the file that has the agents' token and certificate."""
_PRIVATE = ("WINDTUNNEL_FLEET_TOKEN",)
"""Variables of the driver that no agent gets: its secrets come by the file."""


@dataclass(frozen=True)
class AgentCommand:
    """How an agent is started. `driver`: HOST:PORT; `secrets`: a file that only its owner reads, in a folder that all nodes see;
    `folder`: of the run. SpecError for a secrets file that others may read."""

    driver: str
    secrets: Path
    folder: Path | None = None
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
        """The argument list of the agent of a node: no secret is in it."""
        folder = ["--folder", str(self.folder)] if self.folder is not None else []
        return [*self.program, "--driver", self.driver, "--node", node, "--secrets", str(self.secrets), *folder]

    def variables(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The agent's environment: the given one or this process's, without secrets."""
        given = os.environ if environment is None else environment
        return {name: value for name, value in given.items() if name not in _PRIVATE} | {SECRETS: str(self.secrets)}


class Engine(Protocol):
    """Starts one agent on each node. An agent outlives the driver: the engine of a driver that is started again finds those of the
    one before, so that `alive` and `stop` work on them. WindtunnelError where the engine does not answer."""

    def acquire(self, count: int) -> tuple[str, ...]:
        """Names of `count` nodes that agents can be started on, the same ones when asked again."""

    def start(self, nodes: Sequence[str]) -> None:
        """Starts an agent on each node, in place of the one that ran there. Does not wait until it answers."""

    def stop(self, node: str) -> None:
        """Ends the agent of a node and all that it started; nothing where none runs."""

    def is_running(self, node: str) -> bool:
        """Whether the engine says that the agent of the node runs. True does not mean that it answers."""

    def place(self, node: str) -> str | None:
        """The machine that the node is, as the engine names it; None where it is not known."""

    def close(self) -> None:
        """Ends all agents and gives the nodes back."""
