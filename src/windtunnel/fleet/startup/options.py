"""What `fleet startup` takes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from windtunnel.base import options as shared
from windtunnel.base.options import option
from windtunnel.fleet.startup.layout import STORES


@dataclass(frozen=True)
class StartCostOptions:
    """What starting a job's process groups is asked with."""

    mesh: str = option("Ranks of each axis, the last one fastest.", metavar="AXIS=N,…")
    store: str = option("Where ranks meet.", "tcp", metavar="|".join(STORES))
    _: KW_ONLY
    bare: bool = option("Leave the default group without connections.", False)
    per_node: int = option("Ranks of a node, for the hierarchical store.", 8, least=1)
    measured: bool = option("Also start it here, over gloo on loopback; needs torch.", False, word="--measure")


@dataclass(frozen=True)
class StartCostCommandOptions(StartCostOptions):
    """The same for the command line."""

    json: str | None = shared.json()
    quiet: bool = shared.quiet()
