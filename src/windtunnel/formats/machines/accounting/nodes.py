"""Lists of a cluster's nodes (CSV): a node a row with its GPUs and their model, as published traces of clusters have them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import cells_of
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_SPELLINGS = {
    "node": ("nodename", "sn", "machine", "node", "host", "hostname", "machineid"),
    "gpus": ("gpu", "gpus", "gpucapacitynum", "capgpu", "numgpus", "gpunum", "numberofgpus"),
    "model": ("gpumodel", "model", "gputype", "gpuname"),
}
"""Names of columns without signs and in small letters: Alibaba's PAI and openb, Philly."""
_NEEDED = {"node", "gpus"}


def recognises(head: Head) -> bool:
    """A header with a node and its GPUs, and with their model or cores and memory."""
    at = _columns(next(iter(head.lines), ""))
    return at.keys() >= _NEEDED and ("model" in at or re.search(r"cpu|mem", head.lines[0]) is not None)


def read(files: Sequence[Path], context: Context) -> Reading:
    """Nodes and GPUs by model. FileError for files without a node."""
    nodes: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    broken: list[str] = []
    bad = 0
    for path in files:
        at: dict[str, int] = {}
        for text in LogLines(path, context.progress, broken):
            if not at.keys() >= _NEEDED:
                at = _columns(text)
                continue
            row = cells_of(text) if '"' not in text or text.count('"') % 2 == 0 else []
            count = row[at["gpus"]].strip() if len(row) > max(at.values()) else ""
            if not re.fullmatch(r"\d{1,6}(?:\.0*)?", count):
                bad += 1
                continue
            model = row[at["model"]].strip() if "model" in at else ""
            model = model if len(nodes) < 1000 or model in nodes else "other"
            nodes[model or "no model"] += 1
            gpus[model or "no model"] += int(float(count))
            sizes[int(float(count))] += 1
    if not nodes:
        raise FileError(
            str(files[0]), "the header of a list of nodes, without a node", "the list, with the header as its first line"
        )
    if bad:
        broken.append(f"{bad} lines without a number of GPUs")
    facts: dict[str, Any] = {
        "nodes": sum(nodes.values()), "gpus": sum(gpus.values()), "nodes_by_model": dict(nodes.most_common(50)),
        "gpus_by_model": dict(gpus.most_common(50)), "nodes_by_gpus": dict(sorted(sizes.items())),
    }  # fmt: skip
    built = (f"{facts['nodes']:,} nodes with {facts['gpus']:,} GPUs of {len(nodes)} models",)
    return Reading("list of nodes", Content.SETTINGS, facts, facts, built, (), (), tuple(broken))


def _columns(line: str) -> dict[str, int]:
    plain = [re.sub(r"[^a-z]", "", cell.lower()) for cell in line.split(",")]
    if len(plain) < 3:
        return {}
    return {
        key: min(found) for key, names in _SPELLINGS.items() if (found := [plain.index(name) for name in names if name in plain])
    }
