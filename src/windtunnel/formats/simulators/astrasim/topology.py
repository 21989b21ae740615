"""ns-3's physical topology: `nodes switches links`, the switches' ids, then `source target rate delay error` a line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from windtunnel.base.errors import SpecError
from windtunnel.formats.reading import Content, Reading

_LINK = re.compile(r"^\s*\d+\s+\d+\s+\d+(\.\d+)?[KMGT]?bps\s+\d+(\.\d+)?(e-?\d+)?(ns|us|ms|s)\s+\d+(\.\d+)?\s*$", re.IGNORECASE)


def is_physical(lines: Sequence[str], whole: bool) -> bool:
    """Whether lines begin a topology with three numbers; SimAI's have six, and another reader."""
    rows = [line.split() for line in lines[:2]]
    if len(rows) < 2 or len(rows[0]) != 3 or not all(part.isdigit() for row in rows for part in row):
        return False
    shown = [line for line in (lines[2:8] if whole else lines[2:8][:-1]) if line.strip()]
    return bool(shown) and all(_LINK.match(line) for line in shown)


def read_physical(text: str, name: str) -> Reading:
    """Counts and rates of the topology. SpecError where the first line's counts do not hold."""
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
    ends = [(int(row[0][:9]), int(row[1][:9]), row[2], row[3]) for row in rows]
    broken = (f"{lost} lines are no links",) if lost else ()
    return Reading("ns-3 topology", Content.SETTINGS, ends, facts, ("links with their rates and delays",), broken=broken)
