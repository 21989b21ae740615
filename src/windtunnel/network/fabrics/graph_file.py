"""Any graph from a TOML or JSON file: nodes, links, and which nodes flows may name.

    nodes = [{name = "a", kind = "host"}, {name = "s", kind = "switch", count = 2}]
    links = [{from = "a", to = "s0", rate = "100Gb/s", latency = "1us"}]

`count` makes name0, name1, ...; `site` puts a node into a server. A link is a cable, both ways, unless `one_way`; `up = false`
takes it out; `axis` is its dimension. `endpoints` is a list of names, or of tables {node, nics, rail}; left out, it is every
host, or if there is none every GPU. NICs left out are those of the node's server, nearest first. docs/fabrics.md has an example
of each.
"""

from __future__ import annotations

import json
import tomllib
from collections import deque
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from windtunnel.base.errors import FileError, Nothing, SpecError, UnknownName
from windtunnel.base.files import read_text
from windtunnel.base.quantities import Strict
from windtunnel.base.units import parse_bandwidth, parse_time
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import MOST_NODES
from windtunnel.spec.common import Flag, PositiveInt
from windtunnel.spec.loading.explain import explain

MOST_BYTES = 2**30
Label = Annotated[int, Field(ge=-1, le=10**9, strict=True)]
"""A server, a rail or a dimension; -1: none."""


def _rate(value: object) -> float:
    """B/s of a link's one direction."""
    try:
        return parse_bandwidth(value, "link")
    except ValueError as error:
        raise ValueError(f"{error}; a link that is out of order has up = false") from None


class _NodeEntry(Strict):
    """One node, or `count` of them: name0, name1, ..."""

    name: Annotated[str, Field(min_length=1)]
    kind: Literal["cpu", "gpu", "host", "nic", "nvswitch", "pcie", "switch"] = "switch"
    count: PositiveInt | None = None
    site: Label = -1


class _LinkEntry(Strict):
    """A cable. `rate`: B/s of each direction; `latency`: seconds."""

    start: str = Field(alias="from")
    to: str
    rate: Annotated[float, BeforeValidator(_rate)]
    latency: Annotated[float, BeforeValidator(parse_time)] = 0.0
    one_way: Flag = False
    up: Flag = True
    axis: Annotated[int, Field(ge=-1, le=32_000, strict=True)] = -1


class _EndpointEntry(Strict):
    """A node that flows may name. `nics` left out: those of its server."""

    node: str
    nics: list[str] | None = None
    rail: Label = -1

    @model_validator(mode="before")
    @classmethod
    def _only_a_name(cls, entry: Any) -> Any:
        return {"node": entry} if isinstance(entry, str) else entry


class _GraphFile(Strict):
    nodes: Annotated[list[_NodeEntry], Field(min_length=1)]
    links: Annotated[list[_LinkEntry], Field(min_length=1)]
    endpoints: Annotated[list[_EndpointEntry], Field(min_length=1)] | None = None


def load_graph(path: str) -> Graph:
    """The graph that a file describes; FileError if it cannot be read, SpecError with the entry that is wrong."""
    text = read_text(path, MOST_BYTES, "a graph in TOML or JSON")
    try:
        table = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(path, "text that does not parse", "TOML, or JSON in a file that ends in .json", f"{error}.") from error
    return graph_of(table, path)


def graph_of(table: dict[str, Any], path: str = "fabric") -> Graph:
    """The graph of a parsed table; `path` names it in messages."""
    try:
        file = _GraphFile.model_validate(table)
    except ValidationError as error:
        raise explain(error, _GraphFile, path) from error
    columns = Columns()
    index = _nodes(columns, file.nodes, f"{path}.nodes")
    down = _links(columns, file.links, index, f"{path}.links")
    plain = columns.graph([])
    endpoints = file.endpoints or _usual_endpoints(plain, list(index), path)
    ends, nics, start = [], [], [0]
    for i, entry in enumerate(endpoints):
        where = f"{path}.endpoints[{i}]"
        ends.append(_node(entry.node, index, f"{where}.node"))
        named = entry.nics
        nics += _nearest_nics(plain, ends[-1]) if named is None else [_node(n, index, f"{where}.nics") for n in named]
        start.append(len(nics))
    rails = np.array([entry.rail for entry in endpoints], np.int32)
    graph = columns.graph(ends, np.array(nics, np.int32), start, rails)
    graph.link_up[down] = 0
    return graph


def _usual_endpoints(graph: Graph, names: list[str], path: str) -> list[_EndpointEntry]:
    """Every host, or if there is none every GPU."""
    kinds = graph.node_kind
    kind = NodeKind.HOST if (kinds == NodeKind.HOST).any() else NodeKind.GPU
    found = [_EndpointEntry(node=names[i]) for i in np.flatnonzero(kinds == kind)]
    if not found:
        raise SpecError(f"{path}.endpoints", Nothing(), "a list of nodes that flows may name, or hosts or GPUs among the nodes")
    return found


def _nodes(columns: Columns, entries: list[_NodeEntry], path: str) -> dict[str, int]:
    """Adds the nodes; the number of each name."""
    index: dict[str, int] = {}
    for i, entry in enumerate(entries):
        where = f"{path}[{i}]"
        if len(index) + (entry.count or 1) > MOST_NODES:
            raise SpecError(f"{where}.count", entry.count or Nothing(), f"at most {MOST_NODES} nodes in all")
        labels = [entry.name] if entry.count is None else [f"{entry.name}{j}" for j in range(entry.count)]
        ids = columns.nodes(NodeKind[entry.kind.upper()], labels, entry.site)
        for label, node in zip(labels, ids.tolist(), strict=True):
            if label in index:
                raise SpecError(f"{where}.name", label, "a name that no other node has")
            index[label] = node
    return index


def _links(columns: Columns, entries: list[_LinkEntry], index: dict[str, int], path: str) -> list[int]:
    """Adds the links; the numbers of those that are down."""
    down: list[int] = []
    ends = []
    for i, entry in enumerate(entries):
        where = f"{path}[{i}]"
        a, b = _node(entry.start, index, f"{where}.from"), _node(entry.to, index, f"{where}.to")
        if a == b:
            raise SpecError(f"{where}.to", entry.to, "another node than from")
        ends.append((a, b))
        first = i * 2
        down += [first, first + 1] if not entry.up else [first + 1] if entry.one_way else []
    starts, stops = np.array(ends).T
    rates, latencies, axes = (np.array([getattr(e, key) for e in entries]) for key in ("rate", "latency", "axis"))
    columns.cables(starts, stops, rates, latencies, axes)
    return down


def _nearest_nics(graph: Graph, node: int) -> list[int]:
    """NICs in the server of `node`, by hops inside the server, then by number."""
    site = int(graph.node_site[node])
    if site < 0:
        return []
    hops, queue = {node: 0}, deque([node])
    while queue:
        at = queue.popleft()
        for to in graph.link_to[graph.link_from == at].tolist():
            if to not in hops and int(graph.node_site[to]) == site:
                hops[to] = hops[at] + 1
                queue.append(to)
    return sorted((n for n in hops if graph.node_kind[n] == NodeKind.NIC), key=lambda n: (hops[n], n))


def _node(name: str, index: dict[str, int], path: str) -> int:
    if name not in index:
        raise UnknownName(path, name, list(index))
    return index[name]
