"""The figures of a run that a prediction can be held against: the same code reads them off measured and predicted runs."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.records.kernel_classes import class_of
from windtunnel.records.run import EventKind, RankTrace, Run
from windtunnel.runs.axes import AxisOf
from windtunnel.runs.breakdown import StepTime, breakdown
from windtunnel.spec import Job
from windtunnel.traces.clocks import align
from windtunnel.traces.matching import MatchedCalls, match_calls
from windtunnel.traces.windows import WHOLE, windows_of

CLASSES = {
    "gemm": "gemm", "convolution": "gemm", "grouped gemm": "grouped_gemm", "attention": "attention", "scan": "scan", "norm": "norm",
    "loss": "loss", "optimizer": "optimizer",
}  # fmt: skip
"""Classes of kernel names to fields of `spec.calibration.KernelFactors`; the others are elementwise."""

QUIET = 0.2
"""Quantile of the seconds of equal calls that stands for a call without waiting: late partners only make calls longer."""

RUNNING = 0.75
"""Share of the gaps between launches in which the host is taken to run."""


@dataclass(frozen=True)
class CallKind:
    """Calls that take equally long where nothing is wrong: one kind, axis and size on one group of ranks."""

    comm: Comm
    axis: str
    bytes: float  # -1 unknown


@dataclass(frozen=True)
class Observed:
    """S steps of R ranks. Seconds; `step` [S] is the slowest rank's.

    `kernels[class]` [R] device seconds in a step, the median of its steps; `calls[key]` seconds of one call without waiting and how
    often a rank makes it in a step; `groups[axis][ranks]` the same ratio base by group: seconds of its calls without waiting, in a
    step; `launch` [R] host seconds from one launch to the next where the host is not held up.
    """

    ranks: Int64s
    numbers: Int64s
    step: Floats
    kernels: dict[str, Floats]
    compute: Floats  # [R] seconds of kernels in a step
    calls: dict[CallKind, tuple[float, float]]
    groups: dict[str, dict[tuple[int, ...], dict[CallKind, float]]]
    launch: Floats
    times: tuple[StepTime, ...]
    waited: Floats  # [R, R] seconds that a rank waited for another in a step


def observe(run: Run, job: Job) -> Observed:
    """What a run shows. The first step is left out where there are three or more: it warms up."""
    matches = match_calls(run)
    run, _ = align(run, matches) if len(run.ranks) > 1 else (run, None)
    times = _settled_steps(breakdown(run))
    ranks = np.array([trace.rank for trace in run.ranks], np.int64)
    numbers = np.array(sorted({time.step for time in times}), np.int64)
    steps = np.array([_step_seconds(run, times, int(number)) for number in numbers])
    names = sorted({CLASSES.get(label, "elementwise") for time in times for label in time.classes})
    kernels = {name: np.array([_median(times, int(rank), name) for rank in ranks]) for name in names}
    calls, groups = _calls(run, job, matches, numbers)
    compute = np.sum(list(kernels.values()), axis=0) if kernels else np.zeros(len(ranks))
    launch = np.array([_launch_spacing(trace) for trace in run.ranks])
    return Observed(ranks, numbers, steps, kernels, compute, calls, groups, launch, times, _waiting(run, matches, len(numbers)))


def _settled_steps(times: tuple[StepTime, ...]) -> tuple[StepTime, ...]:
    """The steps without the first, where there are three or more."""
    numbers = sorted({time.step for time in times})
    return tuple(time for time in times if time.step != numbers[0]) if len(numbers) > 2 else times


def _step_seconds(run: Run, times: tuple[StepTime, ...], number: int) -> float:
    """Seconds of a step: what the source states, else from the device's windows."""
    stated = run.steps.seconds[(run.steps.step == number) & np.isfinite(run.steps.seconds)] if number != WHOLE else np.zeros(0)
    if len(stated):
        return float(stated.max())
    return max(time.seconds for time in times if time.step == number)


def _median(times: tuple[StepTime, ...], rank: int, name: str) -> float:
    summed = [
        sum(seconds for label, seconds in time.classes.items() if CLASSES.get(label, "elementwise") == name)
        for time in times
        if time.rank == rank
    ]
    return float(np.median(summed)) if summed else 0.0


def _calls(
    run: Run, job: Job, matches: MatchedCalls, numbers: Int64s
) -> tuple[dict[CallKind, tuple[float, float]], dict[str, dict[tuple[int, ...], dict[CallKind, float]]]]:
    """Calls by kind, and by group: seconds without waiting."""
    axis_of = AxisOf(job)
    pure = _without_waiting(run, matches)
    seconds: dict[CallKind, list[float]] = defaultdict(list)
    counts: dict[CallKind, list[float]] = defaultdict(list)
    by_group: dict[str, dict[tuple[int, ...], dict[CallKind, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for index, trace in enumerate(run.ranks):
        events = trace.events
        rows = np.flatnonzero((events.kind == EventKind.CALL) & (events.comm != Comm.NONE))
        rows = rows[_begins_in_a_step(run, trace, rows, numbers)]
        of_rank: dict[CallKind, int] = defaultdict(int)
        for row in rows.tolist():
            group = int(events.group[row])
            members = events.groups[group] if group >= 0 else ()
            name = events.group_names[group] if 0 <= group < len(events.group_names) else ""
            comm, size = Comm(int(events.comm[row])), float(events.bytes[row])
            axis = axis_of(trace.rank, members, name, comm)
            # whole bytes: a prediction has shares of ranks in fractions of a byte, which no file keeps
            key = CallKind(comm, axis, float(round(size)) if size == size else -1.0)
            took = pure[index].get(row, float(events.seconds[row]))
            seconds[key].append(took)
            of_rank[key] += 1
            by_group.setdefault(axis, {}).setdefault(members, {}).setdefault(key, []).append(took)
        for key, count in of_rank.items():
            counts[key].append(count / max(1, len(numbers)))
    table = {key: (float(np.quantile(listed, QUIET)), float(np.median(counts[key]))) for key, listed in seconds.items()}
    groups = {
        axis: {members: {key: float(np.quantile(listed, QUIET)) for key, listed in keys.items()} for members, keys in book.items()}
        for axis, book in by_group.items()
    }
    return table, groups


def _begins_in_a_step(run: Run, trace: RankTrace, rows: Int64s, numbers: Int64s) -> np.ndarray:
    """Which rows begin in one of the steps."""
    begin = trace.events.begin[rows]
    inside = np.zeros(len(rows), np.bool_)
    for window in windows_of(run, trace):
        if window.step in numbers:
            inside |= (begin >= window.begin - 1e-9) & (begin < window.end)
    return inside


def _without_waiting(run: Run, matches: MatchedCalls) -> list[dict[int, float]]:
    """Seconds of matched calls from the last arrival on: those of the part that took the shortest, by trace and row."""
    shortest = np.full(len(matches), np.inf)
    for index, trace in enumerate(run.ranks):
        mine = matches.trace == index
        np.minimum.at(shortest, matches.call[mine], trace.events.seconds[matches.row[mine]])
    out: list[dict[int, float]] = []
    for index in range(len(run.ranks)):
        mine = matches.trace == index
        out.append(dict(zip(matches.row[mine].tolist(), shortest[matches.call[mine]].tolist(), strict=True)))
    return out


def _launch_spacing(trace: RankTrace) -> float:
    """Host seconds from a launch to the next on the thread that launches most: the mean of the shorter `RUNNING` share, since in
    the longest gaps the host waits for the device. NaN for fewer than three launches."""
    events = trace.events
    launches = np.flatnonzero((events.kind == EventKind.LAUNCH) & (events.correlation >= 0))
    if len(launches) < 3:
        return float("nan")
    lanes, counts = np.unique(events.lane[launches], return_counts=True)
    mine = launches[events.lane[launches] == lanes[np.argmax(counts)]]
    gaps = np.sort(np.diff(np.sort(events.begin[mine])))
    gaps = gaps[gaps > 0][: max(1, int(RUNNING * len(gaps)))]
    return float(gaps.mean()) if len(gaps) else float("nan")


def _waiting(run: Run, matches: MatchedCalls, steps: int) -> Floats:
    from windtunnel.runs.breakdown import waits_of

    return waits_of(run, matches).matrix / max(1, steps)


def label_class(name: str) -> str:
    """The field of `KernelFactors` that a kernel's name belongs to."""
    return CLASSES.get(class_of(name), "elementwise")
