"""All that is read off a run alone: the breakdown, the calls, the clocks and the waiting, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from windtunnel.records.run import Run
from windtunnel.runs.breakdown import StepTime, breakdown
from windtunnel.runs.calls import CallRow, call_table
from windtunnel.runs.hta import HtaFigures, hta_figures
from windtunnel.runs.waits import Waits, waits_of
from windtunnel.traces.clocks import Clocks, align
from windtunnel.traces.matching import match_calls

_LOOSE = 1e-3
"""Seconds between the ends of matched calls above which a match is doubtful: a collective ends everywhere within microseconds."""


@dataclass(frozen=True)
class RankMean:
    """The mean step of a rank, in seconds; the parts as in `StepTime`."""

    rank: int
    steps: int
    seconds: float
    compute: float
    exposed: float
    hidden: float
    copy: float
    host: float
    sync: float
    queue: float
    unknown: float


@dataclass(frozen=True)
class RunReport:
    """What a run says alone. `classes`: kernel seconds of a mean step of a mean rank, the largest first."""

    run: Run
    steps: tuple[StepTime, ...]
    classes: dict[str, float]
    calls: tuple[CallRow, ...]
    clocks: Clocks
    waits: Waits
    hta: tuple[HtaFigures, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds and bytes."""
        return as_json(self)


def report_of(run: Run) -> RunReport:
    """The report of a run; clocks are aligned where calls of several ranks match."""
    matches = match_calls(run)
    aligned, clocks = align(run, matches)
    steps = breakdown(run)
    notes = []
    if matches.guessed:
        notes.append("The traces name no groups: calls of one kind are matched in order over all ranks.")
    if matches.unmatched and len(run.ranks) > 1:
        notes.append(f"{matches.unmatched} calls have no partner in the other traces.")
    if clocks.calls and clocks.residual_median > _LOOSE:
        notes.append("The ends of matched calls differ by more than a millisecond: take the waiting with care.")
    return RunReport(
        run, steps, _classes(steps), call_table(run), clocks, waits_of(aligned, matches), hta_figures(run), tuple(notes)
    )


def rank_means(steps: Sequence[StepTime]) -> tuple[RankMean, ...]:
    """The mean step of every rank."""
    ranks = sorted({step.rank for step in steps})
    parts = ("seconds", "compute", "exposed", "hidden", "copy", "host", "sync", "queue", "unknown")
    means = []
    for rank in ranks:
        mine = [step for step in steps if step.rank == rank]
        means.append(RankMean(rank, len(mine), *(float(np.mean([getattr(step, part) for step in mine])) for part in parts)))
    return tuple(means)


def as_json(report: RunReport) -> dict[str, Any]:
    """Stable keys; seconds, bytes and bytes a second. `hta` holds HTA's figures in its own units."""
    return {
        "source": report.run.source,
        "facts": dict(report.run.facts),
        "ranks": [asdict(mean) for mean in rank_means(report.steps)],
        "steps": [asdict(step) for step in report.steps],
        "kernel_classes": report.classes,
        "calls": [asdict(row) for row in report.calls],
        "clocks": {
            "offset": dict(zip([str(t.rank) for t in report.run.ranks], report.clocks.offset.tolist(), strict=True)),
            "drift": report.clocks.drift.tolist(),
            "one_clock": report.clocks.joined,
            "matched_calls": report.clocks.calls,
            "residual_median": report.clocks.residual_median,
            "residual_p95": report.clocks.residual_p95,
        },
        "waiting": {"ranks": [asdict(wait) for wait in report.waits.ranks], "matrix": report.waits.matrix.tolist()},
        "hta": [asdict(one) for one in report.hta],
        "notes": list(report.notes),
    }


def _classes(steps: Sequence[StepTime]) -> dict[str, float]:
    summed: dict[str, float] = {}
    for step in steps:
        for name, seconds in step.classes.items():
            summed[name] = summed.get(name, 0.0) + seconds / len(steps)
    return dict(sorted(summed.items(), key=lambda item: -item[1]))
