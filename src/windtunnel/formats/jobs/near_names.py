"""Names that are like one that is not known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from math import log2


def nearest_three(wanted: str, known: Mapping[str, str]) -> list[str]:
    """The three values of `known` whose keys are most like `wanted`; keys of the same first letters come first, and among those the
    ones whose size is near."""
    size = _billions(wanted)

    def score(key: str) -> tuple[bool, float]:
        near, stem = _billions(key), key.rpartition("/")[2]
        far = abs(log2(near / size)) if near and size else 3.0
        same = re.split(r"[^a-z]", stem)[0] == re.split(r"[^a-z]", wanted)[0]
        return same, SequenceMatcher(None, wanted, stem).ratio() - 0.08 * min(far, 3.0)

    best: dict[str, tuple[bool, float]] = {}
    for key, value in known.items():
        best[value] = max(best.get(value, (False, -9.0)), score(key))
    return sorted(best, key=lambda value: (not best[value][0], -best[value][1], value))[:3]


def _billions(key: str) -> float:
    """The first size in a name; 0 without one."""
    found = re.search(r"(\d+(?:\.\d+)?)([bm])(?=-|$)", key)
    return float(found[1]) * (1.0 if found[2] == "b" else 1e-3) if found else 0.0
