"""Which of ASTRA-sim's configuration files a file is, and what it says.

An analytical network as a cluster: its innermost dimension inside a node, the next one between nodes.

ns-3's physical topology: `nodes switches links`, the switches' ids, then `source target rate delay error` a line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from windtunnel.base.errors import SpecError
from windtunnel.base.files import MIB, read_text
from windtunnel.base.link_lines import link_of
from windtunnel.formats.reading import Content, Reading
from windtunnel.formats.simulators.astrasim.configuration import (
    READ_KEYS,
    SHAPES,
    AnalyticalNetwork,
    first_system,
    is_first_network,
    memory_of,
    network_of,
    system_of,
    today_network,
)
from windtunnel.formats.simulators.simai import topology as simai
from windtunnel.formats.simulators.simai.topology import SimaiTopology
from windtunnel.formats.traces.chakra.groups import groups_of, is_groups
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
    cluster, assumed = _cluster_of_links(lines, name, nodes, switches)
    return Reading("ns-3 topology", Content.CLUSTER, cluster, facts, ("a cluster: a node for each host",), (), assumed)


def _cluster_of_links(lines: Sequence[str], name: str, nodes: int, switches: int) -> tuple[Cluster, tuple[str, ...]]:
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
    cluster, assumed = simai.cluster_of(SimaiTopology(nodes, 1, 0, switches, len(links), "H100", ids, tuple(links)), name)
    named = cluster.model_copy(update={"id": "ns-3", "name": "ns-3 topology", "source": "a topology file of ns-3"})
    return named, ("a host is a node of one H100 and one NIC", *assumed)


_KEY = re.compile(r"^[ \t]*topology\s*:", re.MULTILINE)
_SYSTEM_KEYS = (
    "scheduling-policy",
    "preferred-dataset-splits",
    "endpoint-delay",
    "active-chunks-per-dimension",
    "all-reduce-implementation",
)


def kind_of(text: str, whole: bool = True) -> str | None:
    """`network`, `system`, `memory`, `groups`, `logical` or `physical`; None for another file. JSON must be whole to be told."""
    start = text.lstrip()[:1]
    if start == "{" and whole:
        try:
            table = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return _json_kind(table)
    if _KEY.search(text) and "npus_count" in text and whole:
        try:
            table = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            return None
        return "network" if isinstance(table, dict) and _shapes(table.get("topology")) else None
    if whole and len(text) < MIB and first_system(text) is not None:
        return "first system"
    return "physical" if is_physical(text.splitlines(), whole) else None


def _json_kind(table: object) -> str | None:
    if not isinstance(table, dict) or not table:
        return None
    if "memory-type" in table:
        return "memory"
    if is_first_network(table):
        return "first network"
    if "logical-dims" in table or set(table) == {"physical-dims"}:
        return "logical"
    if sum(key in table for key in _SYSTEM_KEYS) >= 2:
        return "system"
    return "groups" if is_groups(table) and all(str(key).isdigit() for key in table) else None


def _shapes(value: object) -> bool:
    if isinstance(value, str):  # one dimension, its name alone
        return value in SHAPES
    return isinstance(value, list) and bool(value) and all(one in SHAPES for one in value)


def is_known(path: Path) -> bool:
    """Whether a file is one of the configuration files."""
    try:
        return kind_of(read_text(path, 16 * MIB)) is not None
    except SpecError:
        return False


def read(paths: Sequence[Path]) -> Reading:
    """What one configuration file says."""
    if len(paths) > 1:
        raise SpecError(
            "FILE",
            f"{len(paths)} files",
            "one file of ASTRA-sim at a time",
            "`windtunnel replay TRACE --astra-sim …` takes them together.",
        )
    text = read_text(paths[0], 16 * MIB)
    kind = kind_of(text) or ""
    return _READERS[kind](text, str(paths[0]))


def _first_network(text: str, name: str) -> Reading:
    table = json.loads(text)
    reading = _of_network(today_network(table, name), name)
    ignored = tuple(f"{key} (of ASTRA-sim 1)" for key in table if key not in READ_KEYS)
    assumed = ("links of a dimension add up to the bandwidth of an NPU", *reading.assumed)
    return replace(reading, format="ASTRA-sim 1 network", ignored=ignored, assumed=assumed)


def _first_system(text: str, name: str) -> Reading:
    return replace(_of_system(first_system(text) or {}, name), format="ASTRA-sim 1 system")


def _network(text: str, name: str) -> Reading:
    return _of_network(yaml.safe_load(text), name)


def _of_network(table: Mapping[str, Any], name: str) -> Reading:
    network = network_of(table, name)
    cluster, assumed = cluster_of(network)
    facts = {
        "topology": list(network.topology),
        "npus_count": list(network.npus_count),
        "npus": network.npus,
        "bandwidth_GBps": list(network.bandwidth),
        "bandwidth_bytes_per_s": [one * 2**30 for one in network.bandwidth],
        "latency_ns": list(network.latency),
    }
    built = ('a cluster; "GB/s" of the file are 2^30 B/s, as ASTRA-sim reads them',)
    return Reading("ASTRA-sim network", Content.CLUSTER, cluster, facts, built, _unknown(network.unknown), assumed)


def _system(text: str, name: str) -> Reading:
    return _of_system(json.loads(text), name)


def _of_system(table: Mapping[str, Any], name: str) -> Reading:
    system = system_of(table, name)
    facts = {
        "scheduling_policy": system.policy,
        "collective_optimization": system.optimization,
        "implementations": {call: list(names) for call, names in system.implementations.items()},
        "custom": dict(system.custom),
        "endpoint_delay_ns": system.endpoint_delay,
        "active_chunks_per_dimension": system.active_chunks,
        "preferred_dataset_splits": system.splits,
        "local_mem_bytes_per_s": system.local_mem_bw,
        "peak_flops": system.peak_perf,
        "roofline": system.roofline,
        "replay_only": system.replay_only,
    }
    assumed = () if system.local_mem_bw else ("no local-mem-bw: ASTRA-sim then waits for ever at the first reduction",)
    built = ("settings of `windtunnel replay --astra-sim`; GB/s of the memory are 10^9 B/s, TFLOP/s 10^12",)
    ignored = _unknown(system.unknown) + (("model-shared-bus: the bus is not modelled",) if system.shared_bus else ())
    return Reading("ASTRA-sim system", Content.SETTINGS, system, facts, built, ignored, assumed)


def _memory(text: str, name: str) -> Reading:
    memory = memory_of(json.loads(text), name)
    facts = {
        "memory_type": memory.kind,
        "latency_ns": memory.latency,
        "bandwidth_bytes_per_s": memory.bandwidth * 1e9,
        "nodes": memory.nodes,
        "npus_per_node": memory.npus_per_node,
    }
    built = ("settings of `windtunnel replay --astra-memory`; the bandwidth is in B/ns",)
    return Reading("ASTRA-sim remote memory", Content.SETTINGS, memory, facts, built, _unknown(memory.unknown))


def _groups(text: str, name: str) -> Reading:
    groups = groups_of(text, name)
    sizes = sorted({len(ranks) for ranks in groups.values()})
    facts = {"groups": len(groups), "sizes": sizes, "ranks": len({rank for ranks in groups.values() for rank in ranks})}
    return Reading("communicator groups", Content.SETTINGS, groups, facts, ("groups of `windtunnel replay --comm-groups`",))


def _logical(text: str, name: str) -> Reading:
    table = json.loads(text)
    key = "logical-dims" if "logical-dims" in table else "physical-dims"
    dims = table[key]
    if not isinstance(dims, list) or not all(str(one).isdigit() and int(str(one)[:9]) > 0 for one in dims) or not dims:
        raise SpecError(f"{name}: {key}", dims, 'numbers as strings: ["8", "2"]')
    values = [int(str(one)[:9]) for one in dims]
    facts = {key.replace("-", "_"): values}
    return Reading(f"ASTRA-sim {key[:-5]} topology", Content.SETTINGS, values, facts, ("dimensions of an ns-3 run",))


def _physical(text: str, name: str) -> Reading:
    return read_physical(text, name)


def _unknown(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{key}: ASTRA-sim does not know this key and ignores it" for key in keys)


_READERS: Mapping[str, Callable[[str, str], Reading]] = {
    "network": _network, "system": _system, "memory": _memory, "groups": _groups, "logical": _logical, "physical": _physical,
    "first network": _first_network, "first system": _first_system,
}  # fmt: skip


BASE = "h100-ib"
"""The cluster whose GPU and host stand in for what a network file does not say."""
_KINDS = {"Switch": "nvswitch", "FullyConnected": "nvlink_mesh", "Ring": "nvlink_mesh"}


def cluster_of(network: AnalyticalNetwork) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, and what was assumed for it."""
    inner, rest = network.npus_count[0], network.npus // network.npus_count[0]
    rates = [f"{one * 2**30!r}B/s" for one in network.bandwidth]
    table: dict[str, object] = {
        "base": BASE,
        "id": "astra-sim",
        "name": "ASTRA-sim network",
        "gpus": network.npus,
        "node": {
            "base": "hgx-h100",
            "gpus": inner,
            "scale_up": {
                "kind": _KINDS[network.topology[0]],
                "size": inner,
                "bandwidth": f"{rates[0]} per GPU each way",
                "links": 1,
            },
        },
        "source": "an ASTRA-sim network file",
    }
    assumed = [f"GPU and host of {BASE}: a network file says nothing of them"]
    if rest > 1:
        nic = {"count": inner, "bandwidth": f"{rates[1]} per NIC each way"}
        table["node"] = {**dict(table["node"]), "nic": nic}  # type: ignore[call-overload]
        table["fabric"] = {"base": "ib", "hop_latency": f"{network.latency[1]!r}ns", "efficiency": 1.0}
        assumed.append("the second dimension as one NIC for each GPU and a fabric between nodes, without contention")
    if network.topology[0] == "Ring":
        assumed.append("the inner ring as direct links")
    if len(network.npus_count) > 2:
        assumed.append("dimensions beyond the second as fast as the second")
    from windtunnel.spec.loading.load import load_cluster

    return load_cluster(table), tuple(assumed)
