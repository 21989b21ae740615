"""SimAI's topology: six counts, the switches' numbers, then `source target rate delay error` a line; read and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import lines_of
from windtunnel.base.link_lines import TopologyLink, link_of
from windtunnel.base.units import parse_time

if TYPE_CHECKING:
    from windtunnel.spec.machine import Cluster

NODES = {"A100": "hgx-a100-80gb", "A800": "hgx-a800-80gb", "H100": "hgx-h100", "H800": "hgx-h800", "H20": "hgx-h20"}
MOST_LINKS = 20_000_000


SimaiLink = TopologyLink


@dataclass(frozen=True)
class SimaiTopology:
    """GPUs are 0 to `gpus` - 1, then NVSwitches, then switches."""

    nodes: int
    gpus_per_server: int
    nvswitches: int
    switches: int
    declared: int
    gpu_type: str
    ids: tuple[int, ...]
    links: tuple[SimaiLink, ...]
    broken: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return self.nodes - self.nvswitches - self.switches


def is_topology(lines: Sequence[str]) -> bool:
    """Whether lines begin a topology: five counts and a GPU's name, numbers, a link."""
    if len(lines) < 3:
        return False
    head = lines[0].split()
    return len(head) == 6 and all(one.isdigit() for one in head[:5]) and not head[5].isdigit() and link_of(lines[2]) is not None


def read_topology(path: Path) -> SimaiTopology:
    """FileError for another file, SpecError for counts that contradict each other; lines that are no links are counted."""
    lines = (line for line in lines_of(path, "a topology of SimAI") if line.strip())
    head = next(lines, "").split()
    if len(head) != 6 or not all(one.isdigit() and len(one) < 10 for one in head[:5]):
        raise FileError(str(path), repr(" ".join(head)[:60]), "nodes, GPUs a server, NVSwitches, switches, links, GPU type")
    nodes, servers, nvswitches, switches, links = (int(one) for one in head[:5])
    if nodes <= nvswitches + switches or servers < 1:
        raise SpecError(f"{path}, line 1", " ".join(head), "more nodes than NVSwitches and switches, and a GPU a server")
    ids = tuple(int(one) for one in next(lines, "").split() if one.isdigit() and len(one) < 10)
    found: list[SimaiLink] = []
    lost = 0
    for line in lines:
        link = link_of(line)
        if link is None or max(link.source, link.target) >= nodes or len(found) >= MOST_LINKS:
            lost += 1
            continue
        found.append(link)
    broken = [f"{lost} lines are no links between nodes of the first line"] if lost else []
    if len(found) != links:
        broken.append(f"{len(found)} links follow where the first line says {links}")
    return SimaiTopology(nodes, servers, nvswitches, switches, links, head[5], ids, tuple(found), tuple(broken))


def topology_text(topology: SimaiTopology) -> str:
    """The file: what `read_topology` reads back the same."""
    head = (topology.nodes, topology.gpus_per_server, topology.nvswitches, topology.switches, topology.declared, topology.gpu_type)
    rows = [" ".join(str(one) for one in head), " ".join(str(one) for one in topology.ids)]
    rows += [f"{link.source} {link.target} {link.rate_text} {link.delay_text} {link.error}" for link in topology.links]
    return "\n".join(rows) + "\n"


def facts_of(topology: SimaiTopology) -> dict[str, Any]:
    """Counts that can be checked against the file."""
    degree = Counter(end for link in topology.links for end in (link.source, link.target))
    head = (topology.nodes, topology.gpus_per_server, topology.nvswitches, topology.switches, topology.declared, topology.gpu_type)
    return {
        "header": [str(one) for one in head],
        "gpus": topology.gpus,
        "links_declared": topology.declared,
        "links": len(topology.links),
        "rates": dict(Counter(link.rate_text for link in topology.links)),
        "lat": dict(Counter(link.delay_text for link in topology.links)),
        "degree_max": max(degree.values(), default=0),
    }


def cluster_of(topology: SimaiTopology, file: str | None = None) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster: what hangs on each GPU, and how many nodes share the first tier of switches. SpecError for unequal GPUs.

    `file`: where the topology was read; its switches and cables are then the fabric, as they are.
    """
    first_switch = topology.gpus + topology.nvswitches
    inside: Counter[int] = Counter()
    rates: dict[int, list[SimaiLink]] = {}
    for link in topology.links:
        for gpu, other in ((link.source, link.target), (link.target, link.source)):
            if gpu < topology.gpus <= other < first_switch:
                inside[gpu] += round(link.rate)
            elif gpu < topology.gpus and other >= first_switch:
                rates.setdefault(gpu, []).append(link)
    kinds = {(inside[gpu], tuple(sorted(link.rate for link in rates.get(gpu, [])))) for gpu in range(topology.gpus)}
    if len(kinds) != 1:
        raise SpecError("links", f"{len(kinds)} kinds of GPUs", "GPUs that all have the same links")
    ((nvlink, ports),) = kinds
    assumed = []
    base = NODES.get(topology.gpu_type.upper())
    if base is None:
        base = NODES["H100"]
        assumed.append(f"GPU and host of {base}: {topology.gpu_type} is none that SimAI knows")
    node: dict[str, object] = {"base": base, "gpus": topology.gpus_per_server}
    rate = {"bandwidth": f"{nvlink / 8!r}B/s per GPU each way"} if nvlink else {}
    node["scale_up"] = {"size": topology.gpus_per_server, **rate}
    if not nvlink and topology.gpus_per_server > 1:
        assumed.append(f"NVLink of {base}: the file has no NVSwitches")
    hops = [link.delay for links in rates.values() for link in links]
    table: dict[str, object] = {
        "base": "a100-ib" if topology.gpu_type.upper() in ("A100", "A800") else "h100-roce",
        "id": "simai", "name": "SimAI topology", "gpus": topology.gpus, "node": node, "source": "a topology file of SimAI",
    }  # fmt: skip
    drawn = {} if file is None else {"builder": f"file:{file}"}
    if ports:
        node["nic"] = {"count": topology.gpus_per_server, "bandwidth": f"{sum(ports) / 8!r}B/s per NIC each way"}
        table["fabric"] = {
            "base": "roce",
            "hop_latency": f"{sum(hops) / len(hops)!r}s",
            **_fabric(topology, rates, len(ports)),
            **drawn,
        }
        if len(ports) > 1:
            assumed.append(f"{len(ports)} links of a GPU to switches are ports of one NIC")
    tiers = "leaf switches and their up links as two tiers" if file is None else f"the fabric is read from {file} when a job runs"
    assumed.append(f"{tiers}; host, routing and efficiency as in the catalogue's roce")
    from windtunnel.spec.loading.load import load_cluster

    return load_cluster(table), tuple(assumed)


def _fabric(topology: SimaiTopology, rates: dict[int, list[SimaiLink]], ports: int) -> dict[str, object]:
    """Nodes below a leaf, whether leaves are rails, and how much wider leaves are down than up."""
    leaves: dict[int, set[int]] = {}
    for gpu, links in rates.items():
        for link in links:
            leaves.setdefault(max(link.source, link.target), set()).add(gpu)
    below = [len({gpu // topology.gpus_per_server for gpu in gpus}) for gpus in leaves.values()]
    rail = all(len({gpu % topology.gpus_per_server for gpu in gpus}) == 1 for gpus in leaves.values())
    down = sum(link.rate for links in rates.values() for link in links)
    first = topology.gpus + topology.nvswitches
    up = sum(
        link.rate for link in topology.links
        if min(link.source, link.target) >= first and len({link.source, link.target} & leaves.keys()) == 1
    )  # fmt: skip
    out: dict[str, object] = {
        "topology": "rail" if rail else "fat_tree",
        "leaf_nodes": max(below, default=1),
        "nic_ports": min(4, ports),
    }
    if up:
        out["oversubscription"] = max(1.0, round(down / up, 6))
    return out


def rate_text(rate: float) -> str:
    """Bits/s as SimAI writes them."""
    return f"{rate / 1e9:g}Gbps"


def links_of(pairs: Iterable[tuple[int, int]], rate: float, delay: str) -> list[SimaiLink]:
    """Links of one kind."""
    seconds = parse_time(delay)
    return [SimaiLink(a, b, rate, seconds, rate_text(rate), delay) for a, b in pairs]
