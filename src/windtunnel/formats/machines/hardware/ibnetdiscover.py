"""`ibnetdiscover`, its usual output and that of `-p` (a line a port): switches and hosts of an InfiniBand fabric.

`Switch 65 "S-…" # "name" …`, then `[port] "H-… or S-…"[port] # "name" lid 647 4xNDR`; `Ca 1 "H-…" # "host device"` likewise.

A fabric of switches and hosts as links between ports → levels, radix, rate, oversubscription, and a cluster.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.spec import load_cluster
from windtunnel.spec.machine import Cluster, Nic

_NODE = re.compile(r'^(Switch|Ca|Rt)\s+(\d{1,5})\s+"([^"]+)"\s+#\s+"([^"]*)"')
_PORT = re.compile(r'^\[(\d{1,5})\](?:\([0-9a-fA-F]+\))?\s+"([^"]+)"\[(\d{1,5})\].*?#(.*)$')
_SPEED = re.compile(r"\b(\d{1,2}x\s?(?:SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR|GDR))\b")
_LINE = re.compile(
    r"^(CA|SW|RT)\s+\d+\s+(\d{1,5})\s+(0x[0-9a-fA-F]+)\s+(\d+x\s+\S+)(?:\s+-\s+(CA|SW|RT)\s+\d+\s+(\d{1,5})\s+(0x[0-9a-fA-F]+)\s+\(\s*'([^']*)'\s+-\s+'([^']*)'\s*\))?"
)


def recognises(head: Head) -> bool:
    """Nodes with their GUIDs in quotes, or lines of ports."""
    text = head.text
    return (
        "\nswitchguid=" in text
        or "\ncaguid=" in text
        or sum(_LINE.match(line) is not None for line in head.lines[:50]) >= max(1, min(2, len(head.lines)))
    )


def read(files: Sequence[Path], context: Context) -> Reading:
    """A fabric. FileError for files without a node."""
    links = FabricLinks()
    broken: list[str] = []
    for path in files:
        _take(LogLines(path, context.progress, broken), links)
    if not links.names:
        raise FileError(str(files[0]), "no node of a fabric", "what `ibnetdiscover` prints")
    facts = fabric_facts(links)
    if links.unlinked_nodes:
        broken.append(f"{links.unlinked_nodes} nodes without a port: the file breaks off, or their cables are out")
    if links.joined and not facts["cas"]:
        joined = f"{facts['switches']} switches of radix {facts['radix']}, {facts['switch_switch_links']} links between them"
        hint = "no host adapter: levels and nodes under a leaf stay open; `ibnetdiscover` without options lists adapters too"
        return Reading("ibnetdiscover", Content.SETTINGS, facts, facts, (joined,), (), (), (hint, *broken))
    if not links.joined:
        return Reading("ibnetdiscover", Content.SETTINGS, facts, facts, ("nodes without links",), (), (), tuple(broken))
    cluster, built, assumed = fabric_of(links, facts, context, files[0].name)
    return Reading("ibnetdiscover", Content.CLUSTER, cluster, facts, tuple(built), (), tuple(assumed), tuple(broken))


def _take(lines: LogLines, links: FabricLinks) -> None:
    here = ""
    for text in lines:
        if match := _NODE.match(text):
            here = match[3]
            links.node(here, match[1] == "Switch", match[4], int(match[2]))
        elif here and (match := _PORT.match(text)):
            speed = _SPEED.findall(match[4])
            links.port(here, int(match[1]), match[2], int(match[3]), speed[-1].replace(" ", "") if speed else "")
        elif match := _LINE.match(text):
            if match[5] is None:
                links.idle_ports += 1
                links.node(match[3], match[1] == "SW", "", 0)
                continue
            links.node(match[3], match[1] == "SW", match[8], 0)
            links.node(match[7], match[5] == "SW", match[9], 0)
            links.port(match[3], int(match[2]), match[7], int(match[6]), "".join(match[4].split()))


GBIT_OF_LANE = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Gb/s of a lane (InfiniBand Trade Association's roadmap; data rate after line coding)."""
_BY_LANE = {"EDR": "dgx-1v", "HDR": "a100-ib", "NDR": "h100-ib", "XDR": "b300-ib"}
"""The cluster whose nodes are assumed where only the fabric is known."""
_NO_HOSTS = ("aggregation node", "ufm", "sharp")
_UNNAMED = "unnamed"


@dataclass
class FabricLinks:
    """Nodes by GUID, and links by their two ends (each once, from whichever side it was read)."""

    names: dict[str, str] = field(default_factory=dict)
    switches: dict[str, int] = field(default_factory=dict)  # ports
    joined: dict[frozenset[tuple[str, int]], str] = field(default_factory=dict)  # speed
    port_lines: Counter[str] = field(default_factory=Counter)
    speeds: Counter[str] = field(default_factory=Counter)
    idle_ports: int = 0

    def node(self, guid: str, switch: bool, name: str, ports: int) -> None:
        """A switch or a host adapter."""
        self.names[guid] = name or self.names.get(guid, "")
        if switch:
            self.switches[guid] = max(ports, self.switches.get(guid, 0))

    def port(self, guid: str, port: int, other: str, other_port: int, speed: str) -> None:
        """A port that is joined to another."""
        self.names.setdefault(other, "")
        kind = "S" if guid in self.switches else "C"
        far = "S" if other in self.switches or other.startswith("S-") else "H"
        self.port_lines[f"{kind}-{far}"] += 1
        self.speeds[speed] += 1
        self.joined[frozenset(((guid, port), (other, other_port)))] = speed

    @property
    def unlinked_nodes(self) -> int:
        """Nodes that no link names."""
        return len(self.names.keys() - {guid for ends in self.joined for guid, _ in ends})


@dataclass(frozen=True)
class _Shape:
    """Links by switch: hosts below it, switches beside it; levels from the hosts up."""

    hosts: dict[str, set[str]]  # host names by leaf
    down: Counter[str]
    up: dict[str, Counter[str]]
    level: dict[str, int]


def fabric_facts(links: FabricLinks) -> dict[str, Any]:
    """Counts of a fabric. `hosts` are machines with host adapters: names without the device, adapters of switches left out."""
    adapters = [guid for guid in links.names if guid not in links.switches]
    named = [links.names[guid] for guid in adapters]
    shape = _shape(links)
    leaves = [guid for guid, level in shape.level.items() if level == 1]
    between = sum(all(guid in links.switches for guid, _ in ends) for ends in links.joined)
    adapters_of = Counter(_host(name, guid) for guid in adapters for name in [links.names[guid]] if _is_host(name))
    per_host = [count for host, count in adapters_of.items() if not host.startswith(_UNNAMED)]
    each = round(statistics.median(per_host)) if per_host else 1
    unnamed = len(adapters_of) - len(per_host)
    upward = [sum(shape.up[leaf].values()) for leaf in leaves]
    facts: dict[str, Any] = {
        "switches": len(links.switches),
        "cas": len(adapters),
        "hosts_by_first_word": len({(name.split() or [""])[0] for name in named}),
        "hosts": len(per_host) + -(-unnamed // each),
        "adapters_per_host": each,
        "unnamed_adapters": unnamed,
        "port_lines": dict(links.port_lines),
        "switch_switch_links": between,
        "speeds": dict(links.speeds),
        "levels": max(shape.level.values(), default=0),
        "switches_by_level": dict(sorted(Counter(shape.level.values()).items())),
        "radix": max(links.switches.values(), default=0),
        "leaves": len(leaves),
        "idle_ports": links.idle_ports,
    }
    if leaves:
        facts["leaf_down_links"] = statistics.median([shape.down[leaf] for leaf in leaves])
        facts["leaf_up_links"] = statistics.median(upward)
        facts["rails"] = _rails(shape, leaves)
    return facts


def fabric_of(links: FabricLinks, facts: dict[str, Any], context: Context, source: str) -> tuple[Cluster, list[str], list[str]]:
    """(cluster, built, assumed): the fabric as it is cabled, with the user's nodes or those that go with its rate."""
    shape = _shape(links)
    assumed: list[str] = []
    speed = max(links.speeds, key=lambda word: (links.speeds[word], word))
    lanes, _, kind = speed.partition("x")
    rate = float(lanes or 0) * GBIT_OF_LANE.get(kind, 0.0) * 1e9 / 8
    if context.cluster is not None:
        base = load_cluster(context.cluster)
    elif context.on is not None:
        base = context.on.cluster
    else:
        base = load_cluster(_BY_LANE.get(kind, "h100-ib"))
        assumed.append(f"nodes and GPUs: those of {base.id}, by the link rate; --cluster CLUSTER says others")
    leaves = [guid for guid, level in shape.level.items() if level == 1]
    inside = [len(shape.hosts[leaf]) for leaf in leaves if shape.hosts[leaf]]
    leaf_nodes = max(1, round(statistics.median(inside))) if inside else base.fabric.leaf_nodes
    up, down = facts.get("leaf_up_links", 0), facts.get("leaf_down_links", 0)
    ratio = down / up if up else 1.0
    nodes = max(1, facts["hosts"])
    fabric = base.fabric.model_copy(
        update={
            "id": "measured",
            "kind": "infiniband",
            "topology": "rail" if facts.get("rails", 1) > 1 else "fat_tree",
            "leaf_nodes": leaf_nodes,
            "pod_nodes": max(leaf_nodes, nodes if facts["levels"] < 3 else base.fabric.pod_nodes),
            "oversubscription": max(ratio, 1e-3),
            "builder": None,
            "source": f"ibnetdiscover: {source}; latency and efficiency: {base.fabric.id}",
        }
    )
    node = base.node
    if rate > 0:
        nic = {"count": facts["adapters_per_host"], "bandwidth": f"{rate!r}B/s per NIC each way", "source": f"{speed} of {source}"}
        node = node.model_copy(update={"nic": Nic.model_validate(nic)})
    cluster = base.model_copy(
        update={"id": f"{base.id}-measured-fabric", "node": node, "fabric": fabric, "gpus": nodes * node.gpus}
    )
    rails = facts.get("rails", 1) > 1
    built = [
        f"{facts['switches']} switches in {facts['levels']} levels, radix {facts['radix']}, links of {rate * 8e-9:g} Gb/s",
        f"{nodes} nodes, {facts['adapters_per_host']} adapters each, {leaf_nodes} under a leaf{' of each rail' if rails else ''}",
        f"{down:g} links down and {up:g} up of a leaf: oversubscription {ratio:.2f}",
    ]
    if any("aggregation node" in name.lower() for name in links.names.values()):
        assumed.append("the switches can reduce (SHARP); it is off unless fabric.in_network_reduction says so")
    if facts["unnamed_adapters"]:
        assumed.append(
            f"{facts['unnamed_adapters']} adapters without a host's name: {facts['adapters_per_host']} a node, as the others have"
        )
    return cluster, built, assumed


def _shape(links: FabricLinks) -> _Shape:
    hosts: dict[str, set[str]] = defaultdict(set)
    down: Counter[str] = Counter()
    up: dict[str, Counter[str]] = defaultdict(Counter)
    for ends in links.joined:
        if len(ends) != 2:
            continue
        (one, _), (other, _) = tuple(ends)
        if one in links.switches and other in links.switches:
            up[one][other] += 1
            up[other][one] += 1
            continue
        switch, adapter = (one, other) if one in links.switches else (other, one)
        name = links.names.get(adapter, "")
        if switch in links.switches and _is_host(name):
            down[switch] += 1
            hosts[switch].add(_host(name, adapter))
    level = {switch: 1 for switch in links.switches if down[switch]}
    edge = list(level)
    while edge:
        following = []
        for switch in edge:
            for other in up[switch]:
                if other not in level:
                    level[other] = level[switch] + 1
                    following.append(other)
        edge = following
    return _Shape(hosts, down, up, level)


def _is_host(name: str) -> bool:
    """Whether an adapter belongs to a host, and not to a switch that reduces or to the fabric's manager."""
    return not any(word in name.lower() for word in _NO_HOSTS)


def _host(name: str, adapter: str) -> str:
    """The machine of an adapter: its first word. An adapter with the card's own name (`MT4129 ConnectX7 …`) stands for itself."""
    words = name.split()
    return words[0] if words and not words[0].startswith(("MT", "localhost", "Mellanox")) else f"{_UNNAMED} {adapter}"


def _rails(shape: _Shape, leaves: list[str]) -> int:
    """Leaves that a host reaches: the median over named hosts."""
    count = Counter(host for leaf in leaves for host in shape.hosts[leaf] if not host.startswith(_UNNAMED))
    return round(statistics.median(count.values())) if count else 1
