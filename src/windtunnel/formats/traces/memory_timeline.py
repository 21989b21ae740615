"""PyTorch's memory timeline (`export_memory_timeline`, the raw form): `[[time in us, action, bytes, category], …]`, plain or gzip.

Bytes are signed, so that they add up; time -1 is what was there before. Categories by number: `torch/profiler/_memory_profiler.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import add_facts
from windtunnel.formats.text.source import load_json

CATEGORIES = ("parameters", "optimizer", "inputs", "temporaries", "activations", "gradients", "autograd", "unknown")
_START = re.compile(r"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]\s*[,\]]")
_WANTED = "a raw memory timeline of PyTorch"


def recognises(head: Head) -> bool:
    """A list of lists of four numbers."""
    return _START.match(head.text) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """Peaks by category of each file, a rank each. FileError for a file that is no such timeline."""
    facts: dict[str, Any] = {}
    for path in files:
        own = _facts(load_json(path, _WANTED), path)
        add_facts(facts, path, own)
    built = (f"a peak of {facts['peak_bytes'] / 2**30:.3f} GiB, {facts['events']} changes",)
    return Reading("memory timeline", Content.SETTINGS, facts, facts, built)


def _facts(value: Any, path: Path) -> dict[str, Any]:
    try:
        rows = np.array(value, np.float64).reshape(-1, 4)
    except (ValueError, TypeError, OverflowError):
        raise FileError(str(path), "rows that are not four numbers", _WANTED) from None
    kind = rows[:, 3]
    if not len(rows) or not np.isfinite(rows).all() or (np.abs(rows[:, 2]) > 2**50).any() or ((kind < 0) | (kind > 7)).any():
        raise FileError(str(path), "numbers that are no bytes of a category", _WANTED)
    total = np.cumsum(rows[:, 2])
    at = int(np.argmax(total))
    named = {name: np.cumsum(np.where(kind == number, rows[:, 2], 0.0)) for number, name in enumerate(CATEGORIES)}
    times = rows[rows[:, 0] >= 0, 0]
    return {
        "events": len(rows),
        "peak_bytes": int(total[at]),
        "at_the_peak": {name: int(sums[at]) for name, sums in named.items() if sums.any()},
        "peak_of_each": {name: int(sums.max()) for name, sums in named.items() if sums.any()},
        "before": int(rows[rows[:, 0] < 0, 2].sum()),
        "left_at_the_end": int(total[-1]),
        "span_us": float(times.max() - times.min()) if len(times) else 0.0,
    }
