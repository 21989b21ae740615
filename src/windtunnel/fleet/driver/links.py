"""Which end of a broken link is at fault: the node whose own port went down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windtunnel.fleet.driver.roster import AgentNode
from windtunnel.fleet.driver.sight import SeenFault


def name_ports(fault: SeenFault, nodes: Sequence[AgentNode], since: float) -> SeenFault:
    """A fault of the class `link` with those of the job's `nodes` as culprits whose ports have lost their link after `since`
    (monotonic seconds); as it is where none has, or all have: then it was what they are connected to."""
    down = [node for node in nodes if node.dropped >= since]
    if fault.what != "link" or not 0 < len(down) < len(nodes):
        return fault
    ranks = tuple(rank.rank for node in down for rank in node.ranks)
    names = tuple(node.name for node in down)
    evidence = f"a port of {' and of '.join(names)} has lost its link; {fault.evidence}"
    return replace(fault, nodes=names, ranks=ranks, evidence=evidence, separable=True)
