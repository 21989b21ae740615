"""The faulty end of a broken link: the node whose own port went down. If no port did, the pair of nodes that lost its
connection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from windtunnel.fleet.driver.roster import AgentNode
from windtunnel.fleet.driver.snapshot import DetectedFault

_PEER = re.compile(r"\[([0-9A-Fa-f:.]+)(?:%\w+)?\]:\d+")
"""The other end of a connection, as gloo prints it."""


def name_faulty_node(fault: DetectedFault, nodes: Sequence[AgentNode], since: float) -> DetectedFault:
    """Names the culprits of a fault of class `link`: those of the job's `nodes` whose ports lost their link after `since`
    (monotonic seconds). If none did, or all did, no node is named; the evidence then says which pair lost its connection, if known,
    and that the faulty side is unknown.
    """
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
    """The two nodes whose ranks each lost a connection to the other one, or the only two nodes of a job in which any did. Empty if
    there is no such pair, or more than one.

    A rank that ends because others have ended also reports lost connections, but those others did not lose theirs to it. Clocks are
    not compared.
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
