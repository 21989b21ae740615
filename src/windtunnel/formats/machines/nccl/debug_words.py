"""What NCCL says of a machine's links, in an expert's words: graphs, paths, NICs, transports, switches in its environment and the
table of its tuner.

Formats of `src/graph/search.cc` (ncclTopoPrintGraph), `src/graph/paths.cc`, `src/graph/tuning.cc`, `src/transport/net_ib*.cc` and
`src/misc/param.cc`; RCCL prints the same. Path types, nearest first, are those of `src/graph/topo.h`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from windtunnel.base.dataclasses import dataclass

PATHS = {
    "LOC": "the same device", "NVL": "NVLink", "NVB": "NVLink through another GPU", "C2C": "the link between CPU and GPU",
    "XGMI": "Infinity Fabric", "PIX": "one PCIe switch", "PXB": "several PCIe switches, without the CPU",
    "P2C": "PCIe to the CPU and its link to the GPU", "PXN": "another GPU's NIC, over NVLink",
    "PHB": "PCIe and the CPU's host bridge",
    "SYS": "the link between CPU sockets", "NET": "the network", "DIS": "nothing: they are apart",
}  # fmt: skip
"""Path type -> what data crosses."""
SLOW = ("PHB", "SYS")
_GRAPH = re.compile(
    r"Pattern (\d+), crossNic (\d), nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+)(?:, nvlink \d)?, type (\w+)/(\w+)"
)
_PATTERNS = {1: "balanced trees", 2: "split trees", 3: "trees", 4: "rings", 5: "NVLS", 6: "CollNet"}
_PAIR = re.compile(r"(GPU|NET)/[0-9A-Fa-f-]+ \(\d+/([\d.]+)/(\w+)\)")
_FROM = re.compile(r"NCCL INFO (GPU|NET|CPU|NVS|PCI)/[0-9A-Fa-f-]+ :")
_GPU = re.compile(r"[\w.-]+:\d+:\d+ (?:\(\d+\) )?\[\d+\](?= NCCL)")
_NIC = re.compile(r"\[(\d+)\]([\w.:-]+)")
_USED = re.compile(r"via NET/(\w+(?:-\w+)?)/(\d+)")
_SWITCHED = re.compile(r"(NCCL_\w+) set by environment to (\S+?)\.?$")
_NO_GDR = re.compile(r"GPU Direct RDMA [Dd]isabled|GDR (?:is )?disabled|nv_peer_mem|no GPUDirect", re.IGNORECASE)
_TABLE = re.compile(r"Latency/AlgBw \|(.*)")
_ROW = re.compile(r"NCCL INFO\s+(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s*\|(.*)")
_CELL = re.compile(r"([\d.]+)\s*/\s*([\d.]+)")
_MEANING = {
    "NCCL_P2P_DISABLE": "GPUs of a node do not reach each other's memory",
    "NCCL_SHM_DISABLE": "no copies through host memory: GPUs of a node use the network",
    "NCCL_IB_DISABLE": "InfiniBand and RoCE are off: TCP alone",
    "NCCL_NVLS_ENABLE": "reductions in the NVLink switch",
}


@dataclass(frozen=True)
class ChannelGraph:
    """A graph that NCCL searched: `channels` of `inside` and `across` GB/s, over paths of these types."""

    pattern: int
    channels: int
    inside: float
    across: float
    path_inside: str
    path_across: str

    def words(self) -> str:
        """Such as "rings: 2 channels of 3 GB/s over PHB"."""
        several = f"{self.channels} channel{'s' * (self.channels != 1)}"
        text = (
            f"{_PATTERNS.get(self.pattern, f'pattern {self.pattern}')}: {several} of {self.inside:g} GB/s over {self.path_inside}"
        )
        if self.across != self.inside:
            text += f", {self.across:g} GB/s to the network"
        return text + (f", NICs over {self.path_across}" if self.path_across != self.path_inside else "")


class DebugWords:
    """Gathers lines of one log."""

    def __init__(self) -> None:
        self.graphs: Counter[ChannelGraph] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.rates: dict[str, float] = {}
        self.nics: dict[str, str] = {}
        self.used: Counter[tuple[str, str]] = Counter()
        self.kinds: Counter[str] = Counter()
        self.switched: dict[str, str] = {}
        self.gpus: set[str] = set()
        self.no_gdr = False
        self.no_ib = False
        self._columns: list[str] = []
        self.tuning: dict[str, dict[str, tuple[float, float]]] = {}

    def line(self, text: str) -> None:
        """Takes a line with NCCL INFO."""
        if match := _GRAPH.search(text):
            pattern, _, channels, inside, across, near, far = match.groups()
            self.graphs[ChannelGraph(int(pattern), int(channels[:6]), float(inside), float(across), near, far)] += 1
        elif match := _FROM.search(text):
            for kind, rate, path in _PAIR.findall(text) if match[1] == "GPU" else ():
                if path != "LOC" and path in PATHS:
                    self.pairs[kind, path] += 1
                    self.rates[path] = max(self.rates.get(path, 0.0), float(rate))
        elif "NET/IB : Using" in text or "NET/Socket : Using" in text:
            if "NET/IB" in text:
                self.nics |= {number: name.partition(":")[0] for number, name in _NIC.findall(text.partition("OOB")[0])[:64]}
        elif "NET/IB : No device found" in text:
            self.no_ib = True
        elif match := _TABLE.search(text):
            self._columns = [" ".join(part.replace("/", " ").split()) for part in match[1].split("|") if part.strip()][:40]
        elif match := _ROW.search(text):
            cells = [(float(a), float(b)) for a, b in _CELL.findall(match[2])]
            self.tuning[match[1]] = dict(zip(self._columns, cells, strict=False))
        elif match := _SWITCHED.search(text):
            self.switched[match[1]] = match[2]
        if (match := _GPU.search(text)) and len(self.gpus) < 100_000:
            self.gpus.add(match[0])
        if match := _USED.search(text):
            self.used[match[1], match[2]] += 1
            self.kinds[f"NET/{match[1]}" + ("/GDRDMA" if "GDR" in text else "")] += 1
        elif " via P2P" in text or " via SHM" in text:
            self.kinds["P2P" if " via P2P" in text else "SHM"] += 1
        self.no_gdr = self.no_gdr or _NO_GDR.search(text) is not None

    def facts(self) -> dict[str, Any]:
        """By stable keys; only what the log has."""
        found: dict[str, Any] = {
            "graphs": [graph.words() for graph, _ in self.graphs.most_common(20)],
            "paths": [f"{kind} over {path}: {count}" for (kind, path), count in self.pairs.most_common(20)],
            "nics": list(self.nics.values()),
            "nics_used": sorted({self.nics.get(number, number) for kind, number in self.used if kind.startswith("IB")}),
            "environment": [f"{name}={value}" for name, value in sorted(self.switched.items())],
            "tuning": {name: best for name in self.tuning if (best := self._best(name))},
            "findings": self.findings(),
        }
        return {name: value for name, value in found.items() if value}

    def _best(self, collective: str) -> str:
        """The fastest choice of the tuner for large buffers, and for small ones."""
        choices = {name: cell for name, cell in self.tuning[collective].items() if cell[1] > 0.0}
        quick = {name: cell for name, cell in self.tuning[collective].items() if cell[0] > 0.0}
        if not choices:
            return ""
        wide, soon = max(choices, key=lambda name: choices[name][1]), min(quick, key=lambda name: quick[name][0], default="")
        text = f"{wide} at {choices[wide][1]:g} GB/s"
        return text + (f", {soon} from {quick[soon][0]:g} us" if soon else "")

    def findings(self) -> list[str]:
        """What an expert would say, the gravest first."""
        said: list[str] = []
        if any(kind.startswith("NET/Socket") for kind in self.kinds) or (self.no_ib and not self.nics and "P2P" not in self.kinds):
            why = "no InfiniBand or RoCE device was found" if self.no_ib else "InfiniBand or RoCE is not used"
            said.append(f"NET/Socket: traffic between nodes goes over TCP; {why}")
        if self.nics and self.used:
            used = {number for kind, number in self.used if kind.startswith("IB")}
            unused = [name for number, name in self.nics.items() if number not in used]
            if unused:
                gpus = f"the {len(self.gpus)} GPU{'s' * (len(self.gpus) != 1)} of this log"
                said.append(f"{len(unused)} of {len(self.nics)} NICs are not used by {gpus}: {', '.join(unused[:8])}")
        wide = {kind for kind in self.kinds if kind.startswith("NET/IB")}
        if wide and not any("GDRDMA" in kind for kind in wide) or self.no_gdr:
            said.append("no GPUDirect RDMA: NICs reach GPU memory through host memory")
        if self.kinds["SHM"] and not self.kinds["P2P"]:
            said.append("SHM: GPUs of a node copy through host memory; they have no peer access")
        for graph in [graph for graph, _ in self.graphs.most_common() if graph.pattern == 4][:1]:
            total = graph.channels * graph.inside
            text = f"{graph.inside:g} GB/s a channel over {graph.path_inside} ({PATHS.get(graph.path_inside, 'unknown')})"
            text += f", {graph.channels} of them in a ring: {total:g} GB/s"
            if graph.path_inside in SLOW:
                text += "; GPUs do not meet behind one switch"
            said.append(text)
            if graph.path_across in SLOW and graph.path_across != graph.path_inside:
                said.append(f"NICs are reached over {graph.path_across} ({PATHS[graph.path_across]}): no GPUDirect RDMA by default")
        if not self.graphs:
            for path in SLOW:
                if count := sum(number for (kind, name), number in self.pairs.items() if name == path and kind == "GPU"):
                    rate = f" at {self.rates[path]:g} GB/s" if path in self.rates else ""
                    said.append(f"{count} paths between GPUs cross {path} ({PATHS[path]}){rate}")
        for name in self.tuning:
            if best := self._best(name):
                said.append(f"{name}: the tuner expects {best}")
        for name, value in sorted(self.switched.items()):
            if name in _MEANING:
                said.append(
                    f"{name}={value} in the environment: {_MEANING[name]}" + (" (0: off)" if name.endswith("ENABLE") else "")
                )
        return said


def compare_with_cluster(words: DebugWords, scale_up: float, kind: str, nics: int, nic: float) -> list[str]:
    """Findings against what a cluster's links should give: `scale_up` B/s each way of a GPU over links of `kind`, and `nics` NICs
    of `nic` B/s for a node."""
    said = []
    ring = next((graph for graph, _ in words.graphs.most_common() if graph.pattern == 4), None)
    if ring is not None:
        found, expected = ring.channels * ring.inside, scale_up / 1e9
        if ring.path_across in PATHS and words.used and nics:
            found, expected = ring.channels * ring.across, min(expected, nics * nic / 1e9)
        share = found / expected if expected else 1.0
        said.append(f"rings of {found:g} GB/s, where the cluster's {kind} and NICs allow {expected:.4g}: {100.0 * share:.0f} %")
    used = len({number for name, number in words.used if name.startswith("IB")})
    if used and nics and used < nics:
        said.append(f"{used} NICs carry traffic, where a node of the cluster has {nics}")
    return said
