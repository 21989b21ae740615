"""TACCL's JSON: topologies (us, us/MB) and sketches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import MIB, read_text
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading

TOPOLOGY = ("gpus_per_node", "node_betas_list")
SKETCH = ("nnodes", "intranode_sketch")
MB = 1e6


def recognises(head: Head) -> bool:
    """Whether a file is a topology or a sketch, by its keys."""
    return head.starts_json(*TOPOLOGY) or head.starts_json(*SKETCH)


def read(files: Sequence[Path], context: Context) -> Reading:
    """One file: its keys, and a topology's us/MB as bytes/s. SpecError where several are given, FileError for broken JSON."""
    if len(files) > 1:
        raise SpecError("FILE", f"{len(files)} files", "one file of TACCL at a time")
    try:
        table = json.loads(read_text(files[0], 16 * MIB, "a JSON of TACCL"))
    except (ValueError, RecursionError) as error:
        raise FileError(str(files[0]), str(error)[:80], "a JSON of TACCL") from None
    if not isinstance(table, dict):
        raise FileError(str(files[0]), type(table).__name__, "a JSON object of TACCL")
    facts: dict[str, Any] = dict(table)
    if any(key not in table for key in TOPOLOGY):
        return Reading("TACCL sketch", Content.SETTINGS, table, facts, ("a sketch: nodes, relays and symmetries",))
    facts["node_bytes_per_s"] = _rates(table, "node_betas_list")
    facts["remote_bytes_per_s"] = next(iter(_rates(table, "remote_beta")), None)
    built = ("a topology: latency in us, us/MB as bytes/s",)
    return Reading("TACCL topology", Content.SETTINGS, table, facts, built)


def _rates(table: Mapping[str, Any], key: str) -> list[float]:
    """Bytes/s of us/MB, a number or a list."""
    value = table.get(key)
    values = value if isinstance(value, list) else [value]
    numbers = [one for one in values if isinstance(one, (int, float)) and not isinstance(one, bool) and 0 < one < 1e300]
    return [MB / (float(one) * 1e-6) for one in numbers]
