"""Which end of a broken link is at fault: the node whose own port went down. Where none did, which pair of nodes it joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from windtunnel.fleet.driver.roster import AgentNode
from windtunnel.fleet.driver.snapshot import DetectedFault

_PEER = re.compile(r"\[([0-9A-Fa-f:.]+)(?:%\w+)?\]:\d+")
"""The other end of a connection, as gloo writes it."""


def name_faulty_node(fault: DetectedFault, nodes: Sequence[AgentNode], since: float) -> DetectedFault:
    """A fault of the class `link` with those of the job's `nodes` as culprits whose ports have lost their link after `since`
    (monotonic seconds). Where none has, or all have, nobody is named: the evidence says which pair lost its connection, if that is
    known, and that the side is not."""
    if fault.what != "link" or not nodes:
        return fault
    down = [node for node in nodes if node.dropped >= since]
    if 0 < len(down) < len(nodes):
        ranks = tuple(rank.rank for node in down for rank in node.ranks)
        names = tuple(node.name for node in down)
        evidence = f"a port of {' and of '.join(names)} has lost its link; {fault.evidence}"
        return replace(fault, nodes=names, ranks=ranks, evidence=evidence, separable=True)
    pair = broken_pair(nodes)
    where = f"it broke between {' and '.join(pair)}; " if pair else ""
    ports = "the ports of all nodes have lost their link" if down else "no port has lost its link"
    return replace(fault, evidence=f"{where}{ports}, so which side is at fault is not known; {fault.evidence}")


def broken_pair(nodes: Sequence[AgentNode]) -> tuple[str, ...]:
    """The two nodes whose ranks each lost a connection to the other one, or the only two of a job in which any did; empty where no
    pair, or more than one, did.

    Who ends because others have ended lost connections too, but those others did not lose theirs to him. Clocks are not compared.
    """
    owners: dict[str, set[str]] = {}
    for node in nodes:
        for address in node.addresses:
            owners.setdefault(address, set()).add(node.name)
    lost = set()
    lines = {
        node.name: [one.text for rank in node.ranks if rank.code for one in rank.found if one.kind == "peer"] for node in nodes
    }
    if len(nodes) == 2 and any(lines.values()):
        return tuple(sorted(lines))
    for node in nodes:
        for address in {text for line in lines[node.name] for text in _PEER.findall(line)}:
            if len(owner := owners.get(address, set())) == 1:  # nodes on one machine share its addresses
                lost.add((node.name, *owner))
    pairs = [(one, other) for one, other in lost if one < other and (other, one) in lost]
    return pairs[0] if len(pairs) == 1 else ()
