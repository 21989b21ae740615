"""ASTRA-sim's four configuration files as data, in its own units: nanoseconds and bytes.

ASTRA-sim reads "GB/s" of a network as 2^30 B/s and that of a local memory as 10^9 B/s. It ignores keys that it does not know; they
are listed here (`unknown`), so that a misspelt one is seen.

Configurations of ASTRA-sim 1 as those of today: an analytical network as JSON, a system as `key: value` lines.

Names: `inputs/network/analytical` and `inputs/system` of ASTRA-sim 1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import MIB, read_text

GIB_NS = 2**30 / 1e9
"""B/ns of one "GB/s" of a network file (astra-network-analytical, common/NetworkFunction.cpp)."""
SHAPES = ("Ring", "FullyConnected", "Switch")
CALLS = {"all-reduce": "ALL_REDUCE", "all-gather": "ALL_GATHER", "reduce-scatter": "REDUCE_SCATTER", "all-to-all": "ALL_TO_ALL"}
_NETWORK = ("topology", "npus_count", "bandwidth", "latency")
_SYSTEM = frozenset(
    {"scheduling-policy", "collective-optimization", "local-reduction-delay", "active-chunks-per-dimension", "L", "o", "g", "G",
     "endpoint-delay", "model-shared-bus", "preferred-dataset-splits", "peak-perf", "local-mem-bw", "roofline-enabled",
     "trace-enabled", "replay-only", "track-local-mem", "local-mem-trace-filename", "per-node-custom-implementation"}
    | {f"{call}-implementation" for call in CALLS} | {f"{call}-implementation-custom" for call in CALLS}
)  # fmt: skip
_MEMORY = ("memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node")
MEMORIES = ("NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL")
LARGEST_WORLD = 2**22
_INT64 = 2**63


@dataclass(frozen=True)
class AnalyticalNetwork:
    """Dimensions of a network file, the innermost first (rank ids vary fastest there). `bandwidth` in its own "GB/s", ns."""

    topology: tuple[str, ...]
    npus_count: tuple[int, ...]
    bandwidth: tuple[float, ...]
    latency: tuple[float, ...]
    unknown: tuple[str, ...] = ()

    @property
    def npus(self) -> int:
        return math.prod(self.npus_count)


@dataclass(frozen=True)
class System:
    """A system file. `local_mem_bw` in B/s and `peak_perf` in FLOP/s, both decimal; delays in ns.

    `implementations`: of each call one algorithm a dimension; `custom`: prefix of the trace that describes a call, with the folder
    of the system file where such a path begins.
    """

    policy: str = "LIFO"
    optimization: str = "baseline"
    endpoint_delay: int = 10
    active_chunks: int = 1
    splits: int = 1
    implementations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    custom: Mapping[str, str] = field(default_factory=dict)
    per_node: str = ""
    peak_perf: float = 0.0
    local_mem_bw: float = 0.0
    roofline: bool = False
    replay_only: bool = False
    shared_bus: bool = False
    unknown: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True)
class RemoteMemory:
    """A remote memory file: latency in ns, bandwidth in B/ns."""

    kind: str = MEMORIES[0]
    latency: float = 0.0
    bandwidth: float = 0.0
    nodes: int = 0
    npus_per_node: int = 0
    unknown: tuple[str, ...] = ()


def read_network(path: Path) -> AnalyticalNetwork:
    """A network yml of the analytical backends. FileError, SpecError for a wrong one."""
    return network_of(_yaml(path), str(path))


def network_of(table: Mapping[str, Any], name: str) -> AnalyticalNetwork:
    """As `read_network`, of its content."""
    columns: dict[str, list[Any]] = {}
    for key in _NETWORK:
        value = table.get(key)
        columns[key] = value if isinstance(value, list) else [value]
        if value is None or not columns[key]:
            raise SpecError(f"{name}: {key}", value, "a list with an entry for each dimension")
    dims = len(columns["topology"])
    for key in _NETWORK[1:]:
        if len(columns[key]) != dims:
            raise SpecError(f"{name}: {key}", columns[key], f"{dims} entries, as topology has")
    for shape in columns["topology"]:
        if shape not in SHAPES:
            raise SpecError(f"{name}: topology", shape, ", ".join(SHAPES))
    counts = tuple(_whole_number(f"{name}: npus_count", one, 2, LARGEST_WORLD) for one in columns["npus_count"])
    if math.prod(counts) > LARGEST_WORLD:
        raise SpecError(f"{name}: npus_count", columns["npus_count"], f"at most {LARGEST_WORLD} NPUs together")
    return AnalyticalNetwork(
        tuple(columns["topology"]),
        counts,
        tuple(_number(f"{name}: bandwidth", one, above=0.0) for one in columns["bandwidth"]),
        tuple(_number(f"{name}: latency", one) for one in columns["latency"]),
        tuple(sorted(str(key) for key in table if key not in _NETWORK)),
    )


def read_system(path: Path) -> System:
    """A system json. FileError, SpecError for a wrong one, also where ASTRA-sim would divide by zero."""
    return system_of(_json(path), str(path))


def system_of(table: Mapping[str, Any], name: str) -> System:
    """As `read_system`, of its content."""

    def one_of(key: str, default: str, allowed: tuple[str, ...]) -> str:
        value = table.get(key, default)
        if value not in allowed:
            raise SpecError(f"{name}: {key}", value, ", ".join(allowed))
        return str(value)

    def whole_number(key: str, default: int, least: int = 0) -> int:
        return _whole_number(f"{name}: {key}", table.get(key, default), least, 2**31)

    def names(key: str) -> tuple[str, ...]:
        value = table[key] if isinstance(table[key], list) else [table[key]]
        if not value or not all(isinstance(one, str) for one in value):
            raise SpecError(f"{name}: {key}", table[key], 'a list of algorithms, one a dimension: ["ring"]')
        return tuple(value)

    native = {call: names(f"{key}-implementation") for key, call in CALLS.items() if f"{key}-implementation" in table}
    custom = {
        call: names(f"{key}-implementation-custom")[0] for key, call in CALLS.items() if f"{key}-implementation-custom" in table
    }
    return System(
        one_of("scheduling-policy", "LIFO", ("LIFO", "FIFO", "EXPLICIT")),
        one_of("collective-optimization", "baseline", ("baseline", "localBWAware")),
        whole_number("endpoint-delay", 10),
        whole_number("active-chunks-per-dimension", 1, 1),
        whole_number("preferred-dataset-splits", 0, 1),
        native,
        custom,
        str(table.get("per-node-custom-implementation", "")),
        1e12 * _number(f"{name}: peak-perf", table.get("peak-perf", 0)),
        1e9 * _number(f"{name}: local-mem-bw", table.get("local-mem-bw", 0)),
        bool(whole_number("roofline-enabled", 0)), bool(whole_number("replay-only", 0)), bool(whole_number("model-shared-bus", 0)),
        tuple(sorted(str(key) for key in table if key not in _SYSTEM)), str(Path(name).parent),
    )  # fmt: skip


def read_memory(path: Path) -> RemoteMemory:
    """A remote memory json. FileError, SpecError for a wrong one."""
    return memory_of(_json(path), str(path))


def memory_of(table: Mapping[str, Any], name: str) -> RemoteMemory:
    """As `read_memory`, of its content."""
    kind = table.get("memory-type", MEMORIES[0])
    if kind not in MEMORIES:
        raise SpecError(f"{name}: memory-type", kind, ", ".join(MEMORIES))
    rate = _number(f"{name}: remote-mem-bw", table.get("remote-mem-bw", 0), above=0.0 if kind != MEMORIES[0] else None)
    per_node = kind == "PER_NODE_MEMORY_EXPANSION"
    return RemoteMemory(
        kind, _number(f"{name}: remote-mem-latency", table.get("remote-mem-latency", 0)), rate,
        _whole_number(f"{name}: num-nodes", table.get("num-nodes", 0), 1 if per_node else 0, 2**31),
        _whole_number(f"{name}: num-npus-per-node", table.get("num-npus-per-node", 0), 1 if per_node else 0, 2**31),
        tuple(sorted(str(key) for key in table if key not in _MEMORY)),
    )  # fmt: skip


def _json(path: Path) -> dict[str, Any]:
    text = read_text(path, 16 * MIB, "a JSON file of ASTRA-sim")
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(str(path), "text that is no JSON", "a JSON file of ASTRA-sim", f"{error}.") from None
    return _table(table, path)


def _yaml(path: Path) -> dict[str, Any]:
    text = read_text(path, MIB, "a network yml of ASTRA-sim")
    try:
        table = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FileError(str(path), "text that is no YAML", "a network yml of ASTRA-sim", f"{str(error).splitlines()[0]}.") from None
    return _table(table, path)


def _table(table: object, path: Path) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise SpecError(str(path), type(table).__name__, "an object with keys")
    return table


def _number(path: str, value: object, above: float | None = None) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18
    if not good or value < 0 or (above is not None and value <= above):  # type: ignore[operator]
        raise SpecError(path, value, "a number above 0" if above is not None else "a number, not negative")
    return float(value)  # type: ignore[arg-type]


def _whole_number(path: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) >= _INT64:
        raise SpecError(path, value, "a whole number")
    if int(value) != value or not least <= value <= most:
        raise SpecError(path, value, f"a whole number from {least} to {most}")
    return int(value)


READ_KEYS = frozenset(
    {"topologies-per-dim", "units-count", "link-bandwidth", "link-latency", "links-count", "topology-name", "dimensions-count"}
)
"""Keys of a network that are read, or that follow from those."""

_LINE = re.compile(r"([a-z][a-z-]*)\s*:\s*(\S+)\s*$")
_LISTS = re.compile(r"-implementation$")


def is_first_network(table: object) -> bool:
    """Whether a JSON value is a network of ASTRA-sim 1."""
    return isinstance(table, dict) and {"topologies-per-dim", "units-count", "link-bandwidth"} <= set(table)


def today_network(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The keys of today's network yml: links of a dimension add up, since today's file states one bandwidth of an NPU."""
    shapes, units, rates = (table.get(key) for key in ("topologies-per-dim", "units-count", "link-bandwidth"))
    latencies, links = table.get("link-latency"), table.get("links-count")
    if not isinstance(shapes, list) or not isinstance(rates, list):
        raise SpecError(f"{name}: link-bandwidth", rates, "a list with an entry for each dimension")
    counts = links if isinstance(links, list) and len(links) == len(rates) else [1] * len(rates)
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) and abs(one) < 1e9 for one in (*rates, *counts)):
        raise SpecError(f"{name}: link-bandwidth", rates, "numbers, in GB/s a link")
    bandwidth = [rate * max(1, int(count)) for rate, count in zip(rates, counts, strict=True)]
    return {"topology": shapes, "npus_count": units, "bandwidth": bandwidth, "latency": latencies}


def first_system(text: str) -> dict[str, Any] | None:
    """The keys of today's system JSON from `key: value` lines; None where they are not a system's."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    matches = [_LINE.match(line.strip()) for line in lines[:100]]
    if not matches or not all(matches):
        return None
    table: dict[str, Any] = {}
    for match in matches:
        assert match is not None
        key, value = match.groups()
        number = int(value) if re.fullmatch(r"-?\d{1,15}", value) else value
        table[key] = value.split("_") if _LISTS.search(key) else number
    return table if {"scheduling-policy", "preferred-dataset-splits"} <= set(table) else None
