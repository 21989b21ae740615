"""Matrices of CUDA's p2pBandwidthLatencyTest and of nvbandwidth: GB/s or us of each pair of GPUs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines, facts_of_logs
from windtunnel.formats.text.source import load_json

_TITLE = re.compile(r"^(.*(?:Bandwidth|bandwidth|Latency).*\((?:GB/s|us)\))\s*$")
_ROW = re.compile(r"^\s*\d{1,3}\s+((?:[\d.]+|N/A)(?:\s+(?:[\d.]+|N/A))*)\s*$")
_DEVICE = re.compile(r"^Device:? (\d{1,3})[,:] (.+?)(?:, pciBusID| \()")
_KNOWN_BY = re.compile(
    r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|^nvbandwidth Version|^[ \t]*(?:Uni|Bi)directional P2P=\w+ .*Matrix \(GB/s\)|"
    r"^[ \t]*P2P=\w+ Latency .*Matrix \(us\)|^[ \t]*memcpy (?:CE|SM) .*bandwidth \(GB/s\)",
    re.MULTILINE,
)
_MOST = 1000


def recognises(head: Head) -> bool:
    """The title of either tool or of one of its matrices, or nvbandwidth's JSON (`-j`)."""
    return _KNOWN_BY.search(head.text) is not None or head.starts_json("nvbandwidth", "testcases")


def read(files: Sequence[Path], context: Context) -> Reading:
    """Medians between different GPUs, by matrix. FileError for files without a matrix."""
    if head_of(files[0]).text.lstrip()[:1] == "{":
        facts, broken = _facts_of_json(files[0]), [f"{path}: another file" for path in files[1:]]
    else:
        facts, broken = facts_of_logs(files, context, _facts)
    if not any(key == "matrices" and value for key, value in facts.items()):
        raise FileError(str(files[0]), "no matrix", "what p2pBandwidthLatencyTest or nvbandwidth prints")
    count, gpus = len(facts["matrices"]), len(facts["devices"])
    built = (f"{count} matri{'x' if count == 1 else 'ces'}" + f" of {gpus} GPUs" * bool(gpus),)
    return Reading("gpu-matrices", Content.SETTINGS, facts, facts, built, (), (), tuple(broken))


def _facts_of_json(path: Path) -> dict[str, Any]:
    """Tests of a JSON by name; a test that did not run has no matrix."""
    value = load_json(path, "the JSON of nvbandwidth")
    run = value.get("nvbandwidth") if isinstance(value, dict) else None
    listed = run.get("testcases") if isinstance(run, dict) else None
    matrices = {}
    for test in listed if isinstance(listed, list) else ():
        matrix = test.get("bandwidth_matrix") if isinstance(test, dict) else None
        rows = [[_number(str(cell)) for cell in row] for row in matrix if isinstance(row, list)] if isinstance(matrix, list) else []
        if (summary := _summary(rows)) is not None:
            matrices[str(test.get("name"))] = summary
    devices = run.get("GPU Device list") if isinstance(run, dict) else None
    return {"devices": [str(one) for one in devices] if isinstance(devices, list) else [], "matrices": matrices}


def _facts(lines: LogLines) -> dict[str, Any]:
    devices: dict[int, str] = {}
    matrices: dict[str, list[list[float]]] = {}
    title: str | None = None
    for text in lines:
        if match := _DEVICE.match(text):
            devices.setdefault(int(match[1]), match[2])
        elif match := _TITLE.match(text):
            title = match[1].strip() if len(matrices) < _MOST else None
            if title is not None:
                matrices[title] = []
        elif title is not None and (match := _ROW.match(text)) and "." in match[1] and len(matrices[title]) < _MOST:
            matrices[title].append([_number(word) for word in match[1].split()])
    shown = {name: summary for name, rows in matrices.items() if (summary := _summary(rows)) is not None}
    return {"devices": [name for _, name in sorted(devices.items())], "matrices": shown}


def _summary(rows: list[list[float]]) -> dict[str, float] | None:
    """Median, least and most between different devices; of a single one, what it measures with itself."""
    apart = [value for at, row in enumerate(rows) for other, value in enumerate(row) if other != at or len(rows) != len(row)]
    values = [value for value in apart or [value for row in rows for value in row] if value == value]
    if not values:
        return None
    return {"rows": len(rows), "median": round(statistics.median(values), 3), "min": min(values), "max": max(values)}


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
