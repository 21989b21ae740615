"""`python -m tests.faults.recovery.drive DIR`: a driver. The agent of one node may reach it by another address (`--detour`), all
but the first may be in a network of their own (`--networks`), each may have so many bytes of memory (`--memory`)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.recovery import forked_keepers, links, memory
from windtunnel.fleet.driver.serve import Driver
from windtunnel.fleet.engines.engine import AgentCommand, Engine
from windtunnel.fleet.engines.local import LocalEngine

Place = Callable[[str, AgentCommand], AgentCommand]


@dataclass
class Placed(LocalEngine):
    """`places`: each makes of the command of a node's agent the one that starts it."""

    places: Sequence[Place] = ()

    def start(self, nodes: Sequence[str]) -> None:
        plain = self.command
        for node in nodes:
            for place in self.places:
                self.command = place(node, self.command)
            super().start((node,))
            self.command = plain


def _places(given: argparse.Namespace, groups: set[str]) -> list[Place]:
    """`groups`: gets the names of the groups that are made."""

    def limited(node: str, command: AgentCommand) -> AgentCommand:
        group = f"windtunnel-{os.getpid()}-{node}"
        groups.add(group)
        return replace(command, program=(*memory.within(group, given.memory), *command.program))

    places: list[Place] = []
    if forked_keepers.DOOR in os.environ:
        places.append(lambda node, command: replace(command, program=forked_keepers.AGENT))
    if given.detour:
        node, address = given.detour
        places.append(lambda one, command: replace(command, driver=address) if one == node else command)
    if given.networks:
        there = links.entering(links.lay())
        places.append(lambda one, command: command if one == "node0" else replace(command, program=(*there, *command.program)))
    if given.memory:
        places.append(limited)
    return places


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.recovery.drive", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detour", nargs=2, metavar=("NODE", "ADDRESS"))
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--memory", type=int, default=0)
    given = parser.parse_args()

    groups: set[str] = set()

    def engine(command: AgentCommand, folder: Path) -> Engine:
        return Placed(command, folder / "agents", places=_places(given, groups))

    try:
        return Driver(given.folder, engine, lambda text: print(text, file=sys.stderr, flush=True)).run()
    finally:
        for group in groups:
            memory.remove(group)


if __name__ == "__main__":
    sys.exit(main())
