"""What an entry of a dump says of itself; entries come from strangers, so that anything may be of another type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PAIR = re.compile(r"(\d{1,7})\s*(->|<-)\s*(\d{1,7})")


def group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Name and description of an entry's group."""
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        return str(group[0]), str(group[1]) if len(group) > 1 else ""
    return str(entry.get("pg_id", "")), ""


def time_of(entry: Mapping[str, Any]) -> float:
    """Unix seconds at which the call was enqueued; NaN unknown."""
    created: Any = entry.get("time_created_ns")
    return float(created) * 1e-9 if is_number(created) else float("nan")


def peer_of(name: str, ranks: tuple[int, ...], own: int) -> int:
    """The other end of `nccl:send 3->0`; the numbers count within the group. -1 unknown."""
    match = _PAIR.search(name)
    if match is None:
        return -1
    ends = [ranks[int(end)] if int(end) < len(ranks) else -1 for end in (match[1], match[3])]
    return next((end for end in ends if end >= 0 and end != own), -1)


def is_number(value: object) -> bool:
    """Whether a value is a number of sensible size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**62


def number_of(value: Any) -> int:
    """A number as a whole one; -1 for anything else."""
    return int(value) if is_number(value) else -1
