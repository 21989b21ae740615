"""`python -m tests.faults.recovery.drive DIR [NODE ADDRESS | --networks]`: a driver; the agent of one node may reach it by another
address, or be in a network of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.recovery import links
from windtunnel.fleet.driver.serve import Driver
from windtunnel.fleet.engines.engine import AgentCommand, Engine
from windtunnel.fleet.engines.local import LocalEngine


@dataclass
class Detour(LocalEngine):
    """`detour`: (node, address)."""

    detour: tuple[str, str] = ("", "")

    def start(self, nodes: Sequence[str]) -> None:
        straight = self.command
        for node in nodes:
            self.command = replace(straight, driver=self.detour[1]) if node == self.detour[0] else straight
            super().start((node,))
        self.command = straight


@dataclass
class Apart(LocalEngine):
    """`there`: before the command of all agents but the first node's."""

    there: tuple[str, ...] = ()

    def start(self, nodes: Sequence[str]) -> None:
        here = self.command
        for node in nodes:
            self.command = here if node == "node0" else replace(here, program=(*self.there, *here.program))
            super().start((node,))
        self.command = here


def _engine(command: AgentCommand, folder: Path) -> Engine:
    given = sys.argv[2:4]
    if given == ["--networks"]:
        return Apart(command, folder / "agents", there=links.entering(links.lay()))
    return Detour(command, folder / "agents", detour=(given[0], given[1]) if given else ("", ""))


if __name__ == "__main__":
    sys.exit(Driver(Path(sys.argv[1]), _engine, lambda text: print(text, file=sys.stderr, flush=True)).run())
