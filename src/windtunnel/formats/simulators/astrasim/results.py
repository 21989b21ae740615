"""What ASTRA-sim prints at the end of a run: `sys[3] finished, 117780 cycles, exposed communication 117780 cycles.`

A cycle is 1 ns. Newer versions log the same line behind a time, and rings and statistics beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.records.run import Run, Steps

_DONE = re.compile(r"sys\[(\d{1,9})\] finished, (\d{1,18}) cycles(?:, exposed communication (\d{1,20}) cycles)?")
_RING = re.compile(r"ring of node \d+, id: \d+ dimension: ")
_WRAPPED = 2**62
_MOST = 10_000_000
_SHOWN = 64


def recognises(head: Head) -> bool:
    """A rank that finished, or the rings that are printed before."""
    return _DONE.search(head.text) is not None or _RING.search(head.text[:65536]) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run with one step of each rank, a further one each time that the ranks finish again (a log of several runs).

    FileError for files in which no rank finished.
    """
    done: list[tuple[int, int, int, int]] = []  # rank, run, cycles, exposed
    runs: Counter[int] = Counter()
    broken: list[str] = []
    wrapped = 0
    for path in files:
        for text in LogLines(path, context.progress, broken):
            match = _DONE.search(text) if "finished" in text else None
            if match and len(done) < _MOST:
                rank, exposed = int(match[1]), int(match[3] or 0)
                wrapped += exposed >= _WRAPPED
                done.append((rank, runs[rank], int(match[2]), exposed if exposed < _WRAPPED else 0))
                runs[rank] += 1
    if not done:
        raise FileError(str(files[0]), "a run of ASTRA-sim in which no rank finished", "its lines `sys[0] finished, … cycles`")
    ranks, steps, cycles, exposures = zip(*done, strict=True)
    longest = {run: max(count for _, own, count, _ in done if own == run) for run in range(min(max(steps) + 1, _SHOWN))}
    facts: dict[str, Any] = {
        "ranks": len(runs),
        "runs": max(steps) + 1,
        "cycles": list(longest.values()),
        "exposed_cycles": max(exposures),
        "by_rank": {str(rank): count for rank, run, count, _ in done[:_SHOWN] if run == 0},
    }
    times = Steps.of(ranks, steps, seconds=[count * 1e-9 for count in cycles])
    run = Run(times, (), {"ranks": len(runs), "cycles": longest[0]}, str(files[0]))
    built = (f"{max(steps) + 1} steps of {len(runs)} ranks: {', '.join(f'{count:,}' for count in longest.values())} cycles",)
    assumed = ("a cycle is 1 ns; the step is one that ASTRA-sim predicted, not one that was measured",)
    if wrapped:
        broken.append(f"{wrapped} ranks whose exposed communication underflowed")
    return Reading("ASTRA-sim results", Content.RUN, run, facts, built, ("rings and statistics",), assumed, tuple(broken))
