"""What dcgm-exporter answers to a scrape: `DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-…"} 312.4`, the text format of Prometheus.

DCGM writes a blank as a number from 2^63 - 16 on, or from 2^47 (an integer of 64 bits, a floating-point number; `dcgm_structs.h`).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_SAMPLE = re.compile(r"(DCGM_\w{1,100})\{([^}]*)\}\s+([-+.\w]+)(?:\s+-?\d+)?")
_WHICH = re.compile(r'\b(UUID|gpu|Hostname)="([^"]*)"')
_BLANK = 2.0**47
_MOST = 1_000_000


def recognises(head: Head) -> bool:
    """A field of DCGM with labels, or the help line of one."""
    return any(line.startswith("# HELP DCGM_") or _SAMPLE.fullmatch(line.strip()) for line in head.lines[:500])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Values of each field by GPU. FileError for files without a sample."""
    fields: dict[str, list[float]] = {}
    gpus: set[tuple[str, str]] = set()
    broken: list[str] = []
    blank = bad = taken = 0
    for path in files:
        for text in LogLines(path, context.progress, broken):
            if not text.startswith("DCGM_"):
                continue
            match = _SAMPLE.fullmatch(text.strip())
            value = _number(match[3]) if match else None
            if match is None or value is None or taken >= _MOST:
                bad += 1
                continue
            taken += 1
            labels = dict(_WHICH.findall(match[2]))
            gpus.add((labels.get("Hostname", ""), labels.get("UUID") or labels.get("gpu", "")))
            fields.setdefault(match[1], [])
            if abs(value) >= _BLANK:
                blank += 1
            else:
                fields[match[1]].append(value)
    if not taken:
        raise FileError(str(files[0]), "no sample of DCGM", "what dcgm-exporter answers at /metrics")
    if bad:
        broken.append(f"{bad} lines that are no sample, or beyond the first {_MOST}")
    facts: dict[str, Any] = {
        "gpus": len(gpus),
        "samples": taken,
        "blank": blank,
        "fields": {k: _spread(v) for k, v in fields.items()},
    }
    built = (f"{taken} samples of {len(fields)} fields of {len(gpus)} GPUs",)
    ignored = [f"{blank} blanks: fields that the GPU does not have"] if blank else []
    assumed = [] if "DCGM_FI_DEV_POWER_USAGE" in fields else ["no power: the exporter's counters leave DCGM_FI_DEV_POWER_USAGE out"]
    return Reading("dcgm", Content.SETTINGS, facts, facts, built, tuple(ignored), tuple(assumed), tuple(broken))


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Least, median and most; None where all are blank."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)} if values else None


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None
