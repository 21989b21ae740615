"""Switches, the switches and nodes below them, and blocks of nodes, as a scheduler knows them → levels, sizes, and a cluster."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.spec import load_cluster
from windtunnel.spec.machine import Cluster

BASE = "h100-ib"
"""The cluster whose nodes and links stand in for what a scheduler's file does not say."""


@dataclass
class SwitchTree:
    """Children of each switch: `switches` by name, `nodes` by the leaf that they hang on; `blocks` of nodes; their `domains`."""

    switches: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    domains: Counter[str] = field(default_factory=Counter)  # nodes by the accelerator domain that a file names
    block_sizes: tuple[int, ...] = ()

    def all_nodes(self) -> set[str]:
        """The names of all nodes."""
        return {name for listed in (*self.nodes.values(), *self.blocks.values()) for name in listed}


def reading_of(tree: SwitchTree, context: Context, kind: str, source: str, ignored: tuple[str, ...], broken: list[str]) -> Reading:
    """A cluster with as many nodes, and its leaves and pods. FileError for a tree without a node."""
    facts = tree_facts(tree)
    if not facts["nodes"]:
        raise FileError(source, "no node below a switch or in a block", f"a topology of {kind} with its nodes")
    cluster, assumed = _cluster(facts, context, kind, source)
    built = [f"{facts['nodes']} nodes"]
    if facts["leaves"]:
        levels = f"{facts['switches']} switches in {facts['levels']} levels"
        built = [f"{facts['nodes']} nodes below {levels}, {facts['leaf_nodes']} under a leaf"]
    if facts["blocks"]:
        built.append(f"{facts['blocks']} blocks of {facts['block_nodes']} nodes")
    return Reading(kind, Content.CLUSTER, cluster, facts, tuple(built), ignored, tuple(assumed), tuple(broken))


def tree_facts(tree: SwitchTree) -> dict[str, Any]:
    """Counts by stable keys; `leaf_nodes`, `pod_nodes` and `block_nodes` are medians."""
    level = _levels(tree)
    below = {name: _switches_below(tree, name) for name in level if level[name] == 2}
    leaves = [len(set(nodes)) for nodes in tree.nodes.values() if nodes]
    names = set(tree.switches) | set(tree.nodes) | {child for listed in tree.switches.values() for child in listed}
    return {
        "nodes": len(tree.all_nodes()),
        "switches": len(names),
        "levels": max(level.values(), default=0),
        "switches_by_level": dict(sorted(Counter(level.values()).items())),
        "leaves": len(leaves),
        "leaf_nodes": _median(leaves),
        "leaf_nodes_most": max(leaves, default=0),
        "pod_nodes": _median([len(nodes) for nodes in below.values() if nodes]),
        "blocks": len(tree.blocks),
        "block_nodes": _median([len(nodes) for nodes in tree.blocks.values()]),
        "block_sizes": list(tree.block_sizes),
        "accelerator_domains": len(tree.domains),
    }


def _levels(tree: SwitchTree) -> dict[str, int]:
    """Level of every switch, 1 for one with nodes; a switch without anything below it has none. Circles end at the first visit."""
    level = {name: 1 for name, nodes in tree.nodes.items() if nodes}
    over: dict[str, list[str]] = {}
    for name, children in tree.switches.items():
        for child in children:
            over.setdefault(child, []).append(name)
    edge = list(level)
    while edge:
        following = []
        for name in edge:
            for parent in over.get(name, ()):
                if parent not in level:
                    level[parent] = level[name] + 1
                    following.append(parent)
        edge = following
    return level


def _switches_below(tree: SwitchTree, top: str) -> set[str]:
    found: set[str] = set()
    seen, edge = {top}, [top]
    while edge:
        name = edge.pop()
        found.update(tree.nodes.get(name, ()))
        for child in tree.switches.get(name, ()):
            if child not in seen:
                seen.add(child)
                edge.append(child)
    return found


def _median(counts: list[int]) -> int:
    return round(statistics.median(counts)) if counts else 0


def _cluster(facts: dict[str, Any], context: Context, kind: str, source: str) -> tuple[Cluster, list[str]]:
    assumed = []
    if context.cluster is not None:
        base = load_cluster(context.cluster)
    elif context.on is not None:
        base = context.on.cluster
    else:
        base = load_cluster(BASE)
        assumed.append(f"nodes, GPUs, NICs and link rates: those of {base.id}; --cluster CLUSTER says others")
    nodes = facts["nodes"]
    leaf = facts["leaf_nodes"] or facts["block_nodes"] or base.fabric.leaf_nodes
    if not facts["leaf_nodes"]:
        assumed.append(f"the {leaf} nodes of a block share their leaf switches: the file names no switch")
    update = {
        "id": "measured",
        "leaf_nodes": leaf,
        "pod_nodes": max(leaf, facts["pod_nodes"] if facts["levels"] >= 3 else nodes),
        "builder": None,
        "source": f"{kind}: {source}; rates, latency and oversubscription: {base.fabric.id}",
    }
    assumed.append(f"oversubscription {base.fabric.oversubscription:g}, as {base.fabric.id} has: a scheduler does not know links")
    fabric = base.fabric.model_copy(update=update)
    if facts["blocks"] or facts["accelerator_domains"]:
        size = base.node.scale_up.size
        assumed.append(f"the scale-up domain is that of {base.id}, {size} GPUs: a block says which nodes share one, not its links")
    return base.model_copy(update={"id": f"{base.id}-scheduled", "fabric": fabric, "gpus": nodes * base.node.gpus}), assumed
