"""ns-3's physical topology: `nodes switches links`, the switches' ids, then `source target rate delay error` a line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from windtunnel.base.errors import SpecError
from windtunnel.base.link_lines import link_of
from windtunnel.formats.reading import Content, Reading
from windtunnel.formats.simulators.simai.topology import SimaiTopology, cluster_of
from windtunnel.spec import Cluster

_LINK = re.compile(r"^\s*\d+\s+\d+\s+\d+(\.\d+)?[KMGT]?bps\s+\d+(\.\d+)?(e-?\d+)?(ns|us|ms|s)\s+\d+(\.\d+)?\s*$", re.IGNORECASE)


def is_physical(lines: Sequence[str], whole: bool) -> bool:
    """Whether lines begin a topology with three numbers; SimAI's have six, and another reader."""
    rows = [line.split() for line in lines[:2]]
    if len(rows) < 2 or len(rows[0]) != 3 or not all(part.isdigit() for row in rows for part in row):
        return False
    shown = [line for line in (lines[2:8] if whole else lines[2:8][:-1]) if line.strip()]
    return bool(shown) and all(_LINK.match(line) for line in shown)


def read_physical(text: str, name: str) -> Reading:
    """A cluster whose hosts are nodes of one GPU, and counts and rates. SpecError where the first line's counts do not hold."""
    lines = [line for line in text.splitlines() if line.strip()]
    nodes, switches, links = (int(part[:9]) for part in lines[0].split())
    rows = [line.split() for line in lines[2:] if _LINK.match(line)]
    lost = len(lines) - 2 - len(rows)
    if len(rows) != links and not lost:
        raise SpecError(f"{name}, line 1", lines[0], f"{len(rows)} links, as many as follow")
    facts = {
        "nodes": nodes,
        "switches": switches,
        "hosts": nodes - switches,
        "links": len(rows),
        "rates": dict(Counter(row[2] for row in rows)),
        "delays": dict(Counter(row[3] for row in rows)),
    }
    broken = (f"{lost} lines are no links",) if lost else ()
    if lost or nodes <= switches:
        ends = [(int(row[0][:9]), int(row[1][:9]), row[2], row[3]) for row in rows]
        return Reading("ns-3 topology", Content.SETTINGS, ends, facts, ("links with their rates and delays",), broken=broken)
    cluster, assumed = _cluster_of(lines, name, nodes, switches)
    return Reading("ns-3 topology", Content.CLUSTER, cluster, facts, ("a cluster: a node for each host",), (), assumed)


def _cluster_of(lines: Sequence[str], name: str, nodes: int, switches: int) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster that SimAI's topology of the same links is: hosts first, then switches."""
    switch = {int(word) for word in lines[1].split() if word.isdigit()}
    if len(switch) != switches or max(switch, default=-1) >= nodes:
        raise SpecError(f"{name}, line 2", lines[1][:60], f"the numbers of {switches} switches")
    order = [node for node in range(nodes) if node not in switch] + sorted(switch)
    number = {node: place for place, node in enumerate(order)}
    links = []
    for at, line in enumerate(lines[2:], 3):
        link = link_of(line)
        if link is None or max(link.source, link.target) >= nodes:
            raise SpecError(f"{name}, line {at}", line[:60], f"a link between two of {nodes} nodes")
        links.append(replace(link, source=number[link.source], target=number[link.target]))
    ids = tuple(range(nodes - switches, nodes))
    cluster, assumed = cluster_of(SimaiTopology(nodes, 1, 0, switches, len(links), "H100", ids, tuple(links)), name)
    named = cluster.model_copy(update={"id": "ns-3", "name": "ns-3 topology", "source": "a topology file of ns-3"})
    return named, ("a host is a node of one H100 and one NIC", *assumed)
