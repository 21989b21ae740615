"""Graphs from files: TOML and JSON, and the text topologies of SimAI and of ns-3 (ASTRA-sim), which simulators read.

SimAI's first line has six words: nodes, GPUs of a server, NVSwitches, switches, links, the GPU; GPUs come first, then NVSwitches.
ns-3's has three: nodes, switches, links; the second line names the switches, and the other nodes are hosts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.base.files import lines_of
from windtunnel.base.link_lines import TopologyLink, link_of, numbers_of
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import MOST_NODES

WANTED = "a graph in TOML or JSON, or a topology of SimAI or ns-3"


def load_file(path: str) -> Graph:
    """The graph of a file of any of these formats. FileError if it cannot be read, SpecError with what is wrong."""
    from windtunnel.network.fabrics.graph_file import load_graph  # here: builders read no file

    if path.endswith((".toml", ".json")):
        return load_graph(path)
    lines = lines_of(Path(path), WANTED)
    first = next((line for line in lines if line.strip()), "")
    counts = numbers_of(first)
    if len(counts) not in (3, 5):
        return load_graph(path)
    return _of_text(path, first.split(), counts, [line for line in lines if line.strip()])


def _of_text(path: str, words: list[str], counts: list[int], lines: list[str]) -> Graph:
    nodes = counts[0]
    if not 0 < nodes <= MOST_NODES:
        raise SpecError(f"{path}, line 1", nodes, f"from 1 to {MOST_NODES} nodes")
    named = numbers_of(lines[0]) if lines else []
    kind, site = np.full(nodes, NodeKind.SWITCH, np.uint8), np.full(nodes, -1, np.int32)
    if len(counts) == 5:
        gpus, each = nodes - counts[2] - counts[3], counts[1]
        if gpus < 1 or each < 1:
            raise SpecError(f"{path}, line 1", " ".join(words), "more nodes than NVSwitches and switches, and a GPU a server")
        kind[:gpus], site[:gpus] = NodeKind.GPU, np.arange(gpus) // each
        kind[gpus : gpus + counts[2]] = NodeKind.NVSWITCH
        ends = np.arange(gpus)
    else:
        if len(named) != counts[1] or max(named, default=-1) >= nodes:
            raise SpecError(f"{path}, line 2", lines[0][:60] if lines else "nothing", f"the numbers of {counts[1]} switches")
        hosts = np.ones(nodes, np.bool_)
        hosts[named] = False
        ends = np.flatnonzero(hosts)
        kind[ends] = NodeKind.HOST
    links = [_link(path, number, line, nodes) for number, line in enumerate(lines[1:], 3)]
    if len(links) != counts[-1]:
        raise SpecError(f"{path}, line 1", " ".join(words), f"{len(links)} links, as many as follow")
    a, b = (np.array([getattr(link, end) for link in links], np.int32) for end in ("source", "target"))
    switch = kind == NodeKind.NVSWITCH  # of the server whose GPUs hang on it
    for one, two in ((a, b), (b, a)):
        inside = switch[two] & (kind[one] == NodeKind.GPU)
        site[two[inside]] = site[one[inside]]
    columns = Columns()
    names = {NodeKind.GPU: "gpu", NodeKind.HOST: "host", NodeKind.SWITCH: "switch", NodeKind.NVSWITCH: "nvswitch"}
    columns.nodes(kind, [f"{names[NodeKind(int(kind[i]))]}{i}" for i in range(nodes)], site)
    columns.cables(a, b, np.array([link.rate / 8 for link in links]), np.array([link.delay for link in links]))
    return columns.graph(ends)


def _link(path: str, number: int, line: str, nodes: int) -> TopologyLink:
    link = link_of(line)
    if link is None or max(link.source, link.target) >= nodes or link.source == link.target or link.rate <= 0.0:
        raise SpecError(
            f"{path}, line {number}", line[:60], f"two nodes below {nodes}, a rate, a delay and an error rate: 0 8 400Gbps 500ns 0"
        )
    return link
