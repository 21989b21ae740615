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
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.base.files import read_text
from windtunnel.base.units import parse_bandwidth, parse_time
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import MOST_NODES

MOST_BYTES = 2**30
_KINDS = {kind.name.lower(): kind for kind in NodeKind}
_NODE = {"name", "kind", "count", "site"}
_LINK = {"from", "to", "rate", "latency", "one_way", "up", "axis"}
_END = {"node", "nics", "rail"}


def load_graph(path: str) -> Graph:
    """The graph that a file describes; FileError if it cannot be read, SpecError with the entry that is wrong."""
    text = read_text(path, MOST_BYTES, "a graph in TOML or JSON")
    try:
        table = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(path, "text that does not parse", "TOML, or JSON in a file that ends in .json", f"{error}.") from error
    if not isinstance(table, dict):
        raise SpecError(path, table, "a table with nodes and links")
    return graph_of(table, path)


def graph_of(table: dict[str, Any], path: str = "fabric") -> Graph:
    """The graph of a parsed table; `path` names it in messages."""
    _known(table, {"nodes", "links", "endpoints"}, path)
    columns = Columns()
    index = _nodes(columns, _entries(table, "nodes", path), f"{path}.nodes")
    down = _links(columns, _entries(table, "links", path), index, f"{path}.links")
    names = list(index)
    plain = columns.graph([])
    endpoints = table.get("endpoints")
    if endpoints is None:
        kinds = plain.node_kind
        endpoint_kind = NodeKind.HOST if (kinds == NodeKind.HOST).any() else NodeKind.GPU
        endpoints = [names[i] for i in np.flatnonzero(kinds == endpoint_kind)]
    if not isinstance(endpoints, list) or not endpoints:
        raise SpecError(f"{path}.endpoints", endpoints, "a list of nodes that flows may name, or hosts or GPUs among the nodes")
    ends, nics, start, rails = [], [], [0], []
    for i, entry in enumerate(endpoints):
        where = f"{path}.endpoints[{i}]"
        one = {"node": entry} if isinstance(entry, str) else entry
        _known(one, _END, where)
        node = _node(one.get("node"), index, f"{where}.node")
        ends.append(node)
        named = one.get("nics")
        if named is not None and not isinstance(named, list):
            raise SpecError(f"{where}.nics", named, "a list of nodes")
        nics += _nearest_nics(plain, node) if named is None else [_node(n, index, f"{where}.nics") for n in named]
        start.append(len(nics))
        rails.append(_whole(one.get("rail", -1), f"{where}.rail", -1))
    graph = columns.graph(ends, np.array(nics, np.int32), start, np.array(rails, np.int32))
    graph.link_up[down] = 0
    return graph


def _nodes(columns: Columns, entries: list[Any], path: str) -> dict[str, int]:
    index: dict[str, int] = {}
    for i, entry in enumerate(entries):
        where = f"{path}[{i}]"
        _known(entry, _NODE, where)
        name, kind = entry.get("name"), entry.get("kind", "switch")
        if not isinstance(name, str) or not name:
            raise SpecError(f"{where}.name", name, "a name")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise UnknownName(f"{where}.kind", str(kind), list(_KINDS))
        count = entry.get("count")
        many = 0 if count is None else _whole(count, f"{where}.count", 1)
        if len(index) + many > MOST_NODES:
            raise SpecError(f"{where}.count", count, f"at most {MOST_NODES} nodes in all")
        labels = [name] if count is None else [f"{name}{j}" for j in range(many)]
        ids = columns.nodes(_KINDS[kind], labels, _whole(entry.get("site", -1), f"{where}.site", -1))
        for label, node in zip(labels, ids.tolist(), strict=True):
            if label in index:
                raise SpecError(f"{where}.name", label, "a name that no other node has")
            index[label] = node
    return index


def _links(columns: Columns, entries: list[Any], index: dict[str, int], path: str) -> list[int]:
    """Adds the links; the numbers of those that are down."""
    rows: list[tuple[int, int, float, float, int]] = []
    down: list[int] = []
    for i, entry in enumerate(entries):
        where = f"{path}[{i}]"
        _known(entry, _LINK, where)
        a, b = _node(entry.get("from"), index, f"{where}.from"), _node(entry.get("to"), index, f"{where}.to")
        if a == b:
            raise SpecError(f"{where}.to", entry["to"], "another node than from")
        try:
            rate = parse_bandwidth(entry.get("rate"), "link")
        except ValueError as error:
            raise SpecError(f"{where}.rate", entry.get("rate"), str(error), "A link that is out of order has up = false.") from None
        try:
            latency = parse_time(entry.get("latency", "0s"))
        except ValueError as error:
            raise SpecError(f"{where}.latency", entry.get("latency"), str(error)) from None
        one_way, up = entry.get("one_way", False), entry.get("up", True)
        if not isinstance(one_way, bool) or not isinstance(up, bool):
            raise SpecError(where, entry, "true or false for one_way and up")
        first = len(rows) * 2
        rows.append((a, b, rate, latency, _whole(entry.get("axis", -1), f"{where}.axis", -1, 32_000)))
        down += [first, first + 1] if not up else [first + 1] if one_way else []
    if rows:
        a_, b_, rate_, latency_, axis_ = (np.array(column) for column in zip(*rows, strict=True))
        columns.cables(a_, b_, rate_, latency_, axis_)
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


def _entries(table: dict[str, Any], key: str, path: str) -> list[Any]:
    entries = table.get(key)
    if not isinstance(entries, list) or not entries:
        raise SpecError(f"{path}.{key}", entries, f"a list of {key}")
    return entries


def _known(entry: Any, keys: set[str], path: str) -> None:
    if not isinstance(entry, dict):
        raise SpecError(path, entry, f"a table with {', '.join(sorted(keys))}")
    for key in entry:
        if key not in keys:
            raise UnknownName(path, str(key), sorted(keys))


def _node(name: Any, index: dict[str, int], path: str) -> int:
    if not isinstance(name, str) or name not in index:
        raise UnknownName(path, str(name), list(index))
    return index[name]


def _whole(value: Any, path: str, low: int, high: int = 10**9) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpecError(path, value, f"a whole number from {low} to {high}")
    return value
