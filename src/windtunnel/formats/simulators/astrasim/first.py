"""Configurations of ASTRA-sim 1 as those of today: an analytical network as JSON, a system as `key: value` lines.

Names: `inputs/network/analytical` and `inputs/system` of ASTRA-sim 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import SpecError

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
