"""Topologies of SimAI and of ns-3 (ASTRA-sim): counts, the switches' numbers, then `source target rate delay error` a line."""

from __future__ import annotations

import re

from windtunnel.base.dataclasses import dataclass

LINK = re.compile(
    r"(\d{1,9})\s+(\d{1,9})\s+(\d+(?:\.\d+)?)([KMGT]?)bps\s+(\d+(?:\.\d+)?(?:e-?\d+)?)(ns|us|ms|s)\s+(\d+(?:\.\d+)?)\s*$",
    re.IGNORECASE,
)
_RATE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class TopologyLink:
    """An undirected link, both ways at once. Bits/s and seconds, and as they are written."""

    source: int
    target: int
    rate: float
    delay: float
    rate_text: str
    delay_text: str
    error: str = "0"


def link_of(line: str) -> TopologyLink | None:
    """The link of a line; None for another line."""
    match = LINK.match(line.strip())
    if match is None:
        return None
    rate, delay = float(match[3]) * _RATE[match[4].lower()], float(match[5]) * _TIME[match[6].lower()]
    return TopologyLink(int(match[1]), int(match[2]), rate, delay, f"{match[3]}{match[4]}bps", f"{match[5]}{match[6]}", match[7])


def numbers_of(line: str) -> list[int]:
    """The whole numbers of a line of counts; empty for another line. SimAI's sixth word is the type of GPU."""
    words = line.split()
    counts = words[:5] if len(words) == 6 and not words[5].isdigit() else words
    return [int(word) for word in counts] if counts and all(word.isdigit() and len(word) < 10 for word in counts) else []
