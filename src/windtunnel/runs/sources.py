"""Measured runs from what holds them: a run's folder, or the traces or logs of its ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Context
from windtunnel.records.run import Run
from windtunnel.records.run_file import is_run, read_run

RunSource = Run | str | Path | Sequence[str | Path]
"""A run, its folder, or the files of its ranks."""


def read_run_of(
    files: Sequence[str | Path], form: str | None = None, progress: Callable[[float], object] | None = None
) -> tuple[Run, tuple[str, ...]]:
    """A run and what of it could not be read. `form`: the format, where content does not show it; `progress` is called with the
    share that is read. SpecError for files that hold something else."""
    if len(files) == 1 and is_run(Path(files[0])):
        return read_run(Path(files[0])), ()
    report = progress or (lambda share: None)
    reading = read_files(list(files), Context(progress=lambda _, done, size: (report(done / max(1, size)), None)[1]), form)
    if reading.content is not Content.RUN:
        hint = f"windtunnel fleet hang {files[0]} says who is to blame." if reading.facts.get("hang") else ""
        raise SpecError(
            "RUN", f"{reading.content.value} ({reading.format})", "a run: profiler traces, logs, or a run's folder", hint
        )
    _refuse_unrelated(reading.value)
    return reading.value, reading.broken


APART = 10.0
"""Two ranks are of different runs if their traces lie further apart than so many times the longest of all."""


def _refuse_unrelated(run: Run) -> None:
    """SpecError for traces whose times lie far apart and in which no call joins one to the others: those of several programs."""
    spans = [
        (float(one.zero + one.events.begin.min()), float(one.zero + (one.events.begin + one.events.seconds).max()), one.source)
        for one in run.ranks if len(one.events)
    ]  # fmt: skip
    if len(spans) < 2 or any((one.events.comm != Comm.NONE).any() for one in run.ranks):
        return
    ordered = sorted(spans)
    longest = max(end - begin for begin, end, _ in ordered)
    for (_, ended, first), (began, _, second) in pairwise(ordered):
        if began - ended > APART * longest:
            raise SpecError(
                "RUN", f"traces whose times lie {began - ended:,.0f} s apart", "traces of the ranks of one run",
                f"No call joins {Path(first).name} and {Path(second).name}: give the traces of one program at a time.",
            )  # fmt: skip


def run_of(source: RunSource) -> Run:
    """The run of any source; what of it cannot be read is left out."""
    if isinstance(source, Run):
        return source
    return read_run_of([source] if isinstance(source, (str, Path)) else source)[0]
