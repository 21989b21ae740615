"""htsim's fat trees (`.topo`), which ASTRA-sim's htsim network takes too: lines of a key and a number, below `Tier N` for a tier.

A radix counts ports, those of bundled links each for itself. Rates are Gb/s each way, latencies ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.spec import Cluster, load_cluster

BASE = "h100-ib"
"""The cluster whose GPU and host stand in for what a topology does not say."""
_GENERAL = ("nodes", "tiers", "podsize")
_OF_A_TIER = ("downlink_speed_gbps", "radix_down", "radix_up", "downlink_latency_ns", "switch_latency_ns", "bundle")
_MOST = {"nodes": 10**7, "podsize": 10**7, "tiers": 3}
_LARGEST = 1e12

_Tiers = list[dict[str, float]]


def recognises(head: Head) -> bool:
    """Lines of nodes and of tiers, and the rate of a tier."""
    begins = [words[0].lower() for line in head.lines[:200] if (words := line.split())]
    return {"nodes", "tier", "downlink_speed_gbps"} <= set(begins)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A cluster whose fabric is that of the first file. FileError for a line that is broken, SpecError for a value out of range."""
    path, *more = files
    general, tiers, unknown = _parse_topology(path, context)
    facts = _facts(general, tiers)
    cluster, assumed = _cluster(facts, context, path.name)
    built = (
        f"{facts['nodes']} ends in {len(tiers)} tiers, links of {' / '.join(f'{rate:g}' for rate in facts['gbps'])} Gb/s",
        f"{facts['leaf_ends']} ends under a leaf, {facts['pod_ends']} in a pod; oversubscription {facts['oversubscription']:.3g}",
    )
    ignored = [f"{path}: {key}, which changes queues and not routes" for key in unknown if key.startswith("queue")]
    ignored += [f"{path}: {key} is not known" for key in unknown if not key.startswith("queue")]
    ignored += [f"{other}: another topology" for other in more]
    return Reading("htsim", Content.CLUSTER, cluster, facts, built, tuple(ignored), tuple(assumed))


def _parse_topology(path: Path, context: Context) -> tuple[dict[str, float], _Tiers, list[str]]:
    """(general values, those of each tier, keys that are not known)."""
    general: dict[str, float] = {}
    tiers: _Tiers = []
    unknown: dict[str, None] = {}
    for number, text in enumerate(LogLines(path, context.progress), 1):
        words = text.split("#")[0].split()
        if not words:
            continue
        key = words[0].lower()
        value = _number(words[1]) if len(words) == 2 else None
        if value is None:
            raise FileError(str(path), f"line {number}: {text[:80]!r}", "a key and a number")
        if key == "tier":
            if value != len(tiers) or value >= _MOST["tiers"]:
                raise FileError(str(path), f"line {number}: tier {value:g}", f"tier {len(tiers)} of at most {_MOST['tiers']}")
            tiers.append({})
        elif key in _GENERAL:
            general[key] = value
        elif key in _OF_A_TIER and tiers:
            tiers[-1][key] = value
        else:
            unknown.setdefault(key)
    return general, tiers, list(unknown)


def _facts(general: dict[str, float], tiers: _Tiers) -> dict[str, Any]:
    """What the fabric is, by stable keys. SpecError for what is missing or contradicts itself."""
    nodes = _whole_number(general, "nodes", "nodes")
    if not tiers:
        raise SpecError("tiers", 0, "one tier or more")
    if "tiers" in general and general["tiers"] != len(tiers):
        raise SpecError("tiers", general["tiers"], f"the number of tiers that follow, {len(tiers)}")
    leaf = min(nodes, _whole_number(tiers[0], "radix_down", "tier 0 radix_down"))
    pod = _whole_number(general, "podsize", "podsize") if "podsize" in general else nodes
    if not leaf <= pod <= nodes or pod % leaf or nodes % pod:
        raise SpecError("podsize", pod, f"a multiple of the {leaf} ends of a leaf that divides the {nodes} nodes")
    rates = [_positive(tier, "downlink_speed_gbps", at) for at, tier in enumerate(tiers)]
    over = [
        _whole_number(tier, "radix_down", f"tier {at} radix_down")
        * rates[at]
        / (_whole_number(tier, "radix_up", f"tier {at} radix_up") * rates[at + 1])
        for at, tier in enumerate(tiers[:-1])
    ]
    return {
        "nodes": nodes, "tiers": len(tiers), "leaf_ends": leaf, "pod_ends": pod, "leaves": nodes // leaf, "pods": nodes // pod,
        "gbps": rates, "bundles": [int(tier.get("bundle", 1)) for tier in tiers],
        "latency_ns": [tier.get("downlink_latency_ns", 0.0) + tier.get("switch_latency_ns", 0.0) for tier in tiers],
        "oversubscription": over[0] if over else 1.0, "pod_oversubscription": over[1] if len(over) > 1 else 1.0,
    }  # fmt: skip


def _cluster(facts: dict[str, Any], context: Context, source: str) -> tuple[Cluster, list[str]]:
    """The fabric under nodes of one GPU, or under the nodes of the user's cluster, whose NICs are then the ends."""
    given = context.cluster is not None or context.on is not None
    base = context.on.cluster if context.on is not None and context.cluster is None else load_cluster(context.cluster or BASE)
    each = base.node.nic.count if given and base.node.nic is not None else 1
    for key in ("nodes", "leaf_ends"):
        if facts[key] % each:
            raise SpecError(key, facts[key], f"a multiple of the {each} NICs of a node of {base.id}", "Name another --cluster.")
    nodes = facts["nodes"] // each
    nic = {"count": each, "bandwidth": f"{facts['gbps'][0]!r}Gb/s per NIC each way", "source": source}
    node: dict[str, Any] = {**base.node.model_dump(mode="json", exclude_none=True), "nic": nic}
    if not given:
        node |= {"id": "htsim-node", "gpus": 1, "scale_up": {**node["scale_up"], "size": 1}}
    latency = facts["latency_ns"][0]
    fabric = {
        "id": "htsim", "kind": "ethernet", "topology": "fat_tree", "leaf_nodes": facts["leaf_ends"] // each,
        "pod_nodes": facts["pod_ends"] // each, "oversubscription": facts["oversubscription"],
        "pod_oversubscription": facts["pod_oversubscription"], "efficiency": base.fabric.efficiency,
        "hop_latency": f"{latency!r}ns" if latency > 0 else base.fabric.hop_latency, "source": f"htsim topology {source}",
    }  # fmt: skip
    table = {**base.model_dump(mode="json", exclude_none=True), "id": "htsim", "name": f"htsim topology {source}"}
    cluster = load_cluster(table | {"gpus": nodes * int(node["gpus"]), "node": node, "fabric": fabric, "source": source})
    assumed = [f"payload rate, GPU and host of {base.id}: a topology says nothing of them"]
    assumed.append(
        f"an end is one of the {each} NICs of a node of {base.id}"
        if given
        else "an end is a node of one GPU and one NIC; --cluster CLUSTER names nodes whose NICs the ends are"
    )
    if len(set(facts["latency_ns"])) > 1:
        assumed.append("every hop takes as long as that of a leaf")
    return cluster, assumed


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 <= value <= _LARGEST else None


def _positive(table: dict[str, float], key: str, tier: int) -> float:
    if not (value := table.get(key, 0.0)) > 0:
        raise SpecError(f"tier {tier} {key}", value, "a number above 0")
    return value


def _whole_number(table: dict[str, float], key: str, name: str) -> int:
    value = table.get(key, 0.0)
    if value < 1 or value != int(value) or value > _MOST.get(key, 10**6):
        raise SpecError(name, value, f"a whole number from 1 to {_MOST.get(key, 10**6)}")
    return int(value)
