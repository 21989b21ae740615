"""The timeline of a step: passes and transfers, kernels inside them, memory over time, and the critical path.

Sequences that are computed from plain data when they are first read: timelines run to hundreds of thousands of rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

from windtunnel.base.arrays import Floats, Int32s
from windtunnel.base.errors import PlanError
from windtunnel.engine import HopKind, Timeline
from windtunnel.memory import StageMemory, curve
from windtunnel.predict.category import Category, Task
from windtunnel.predict.prediction import Span
from windtunnel.predict.program.lower import Lowered, count_executed
from windtunnel.predict.program.stage import PASSES, Label
from windtunnel.predict.runs.run import program_of
from windtunnel.predict.runs.setting import Setting
from windtunnel.predict.runs.step_run import StepRun
from windtunnel.spec.job import Job
from windtunnel.workload import Kind, Phase, Stream, build
from windtunnel.workload.schedules import Action

T = TypeVar("T")


class OnDemand(Sequence[T], Generic[T]):
    """A tuple that is computed from the object's fields on first use; only the fields are pickled and compared."""

    @abstractmethod
    def _make(self) -> tuple[T, ...]: ...

    def _all(self) -> tuple[T, ...]:
        if "_items" not in self.__dict__:
            self.__dict__["_items"] = self._make()
        items: tuple[T, ...] = self.__dict__["_items"]
        return items

    def _key(self) -> Any:
        """The plain data that equality compares."""
        return self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_items"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return _is_equal(self._key(), other._key())
        return tuple(other) == self._all() if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


def _is_equal(one: Any, other: Any) -> bool:
    """Equality of nested plain data that may contain arrays."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)


Row = tuple[Label, float, float]
"""Label of an instance, begin and end in seconds."""

NAMES = tuple(task.key for task in Task)

OF_PASSES = frozenset(PASSES.tolist())

STREAMS = {
    Task.FORWARD: "compute",
    Task.BACKWARD: "compute",
    Task.BACKWARD_INPUT: "compute",
    Task.BACKWARD_WEIGHT: "compute",
    Task.UPDATE: "compute",
    Task.SEND: "send",
    Task.RECEIVE: "receive",
    Task.GATHER: "parameter gather",
    Task.REDUCE: "gradient reduce",
    Task.TIED_EMBEDDING: "world",
    Task.GRADIENT_NORM: "world",
    Task.OFFLOAD: "offload",
    Task.FETCH: "fetch",
    Task.TO_STORAGE: "to storage",
    Task.FROM_STORAGE: "from storage",
    Task.CPU_UPDATE: "CPU",
    Task.DATA_LOADING: "data",
}
"""Track of each task."""


HOST_LAUNCH = "host launch"
"""Stream of the host's launches of passes."""
MOST_KERNELS = 4_000_000
"""Limit of kernels and calls in a timeline; as spans they take about 20 s and 3 GB."""


class StageTimes(NamedTuple):
    """Instances of one stage in program order: `labels` [n, 3] (task, micro batch, virtual stage), `begin`, `end` [n] in seconds,
    and when the host enqueued each, `launch_begin`, `launch_end` [n]; NaN for transfers. `partners`: see `Lowered`."""

    labels: Int32s
    begin: Floats
    end: Floats
    launch_begin: Floats
    launch_end: Floats
    partners: dict[tuple[int, int], tuple[int, int]]


class WholeStep:
    """A step that runs once more, in full and with its critical path, when one of them is first read."""

    def __init__(self, job: Job, setting: Setting, draw: int | None = None) -> None:
        self.job, self.setting, self.draw = job, replace(setting, progress=None), draw

    @cached_property
    def _read(self) -> tuple[tuple[StageTimes, ...], tuple[dict[str, object], ...]]:
        program = program_of(self.job, self.setting, self.draw)
        timeline = program.execute()[0]
        return _stage_times(program.lowered, timeline), critical_path(program.lowered, timeline)

    @property
    def stages(self) -> tuple[StageTimes, ...]:
        """Times of the stages that reports show."""
        return self._read[0]

    @property
    def path(self) -> tuple[dict[str, object], ...]:
        """See `critical_path`."""
        return self._read[1]

    def key(self) -> Any:
        """The plain data that equality compares."""
        return _key_of(self.job, self.setting, self.draw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WholeStep) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.job)

    def __getstate__(self) -> dict[str, Any]:
        return {"job": self.job, "setting": self.setting, "draw": self.draw}


def _key_of(job: Job, setting: Setting, draw: int | None) -> Any:
    profile = setting.profile
    measured = None if profile is None else (profile.name, profile.modules.data)
    return job, replace(setting, profile=None), measured, draw


class StepTimeline(OnDemand[Span]):
    """Every pass, transfer and collective of every stage, and the host's launches of passes."""

    def __init__(self, times: tuple[StageTimes, ...] | WholeStep) -> None:
        self.times = times

    @property
    def stages(self) -> tuple[StageTimes, ...]:
        """Times of each stage."""
        return self.times.stages if isinstance(self.times, WholeStep) else self.times

    def _make(self) -> tuple[Span, ...]:
        spans = []
        for stage, times in enumerate(self.stages):
            for (task, micro_batch, chunk), start, end in _rows(times):
                if task != Task.HOST:
                    track = STREAMS[Task(task)]
                    spans.append(Span(stage, track, _title(task, micro_batch), NAMES[task], start, end, micro_batch, chunk))
            for (task, micro_batch, chunk), start, end in launches(times):
                spans.append(Span(stage, HOST_LAUNCH, _title(task, micro_batch), "host", start, end, micro_batch, chunk))
        return tuple(spans)


class KernelTimeline(OnDemand[Span]):
    """Every kernel and collective inside the passes of every stage: the step runs once more with its operators recorded."""

    def __init__(self, job: Job, setting: Setting, draw: int | None) -> None:
        self.job, self.setting, self.draw = job, replace(setting, progress=None), draw

    def _key(self) -> Any:
        return _key_of(self.job, self.setting, self.draw)

    def _make(self) -> tuple[Span, ...]:
        program = program_of(self.job, self.setting, self.draw)
        lowered, ops = program.lowered, program.workload.ops
        kernels = count_executed(lowered.program, lowered.stages)
        if kernels > MOST_KERNELS:
            raise PlanError(
                "plan.global_batch",
                self.job.plan.global_batch,
                f"at most {MOST_KERNELS:,} kernels in a timeline of kernels",
                f"This step runs {kernels:,}: the timeline of passes is there; for kernels write fewer micro batches.",
            )
        recorded = program.execute(record_ops=range(lowered.stages), critical_path=False)[0].recorded
        shown = ((ops.launches > 0) | (ops.kind == Kind.COMM)).tolist()
        forward = (ops.phase == Phase.FORWARD).tolist()
        keys = {int(category): category.key.replace("_", " ") for category in Category}
        categories = [keys[c] for c in lowered.categories.tolist()]
        streams = [Stream(int(s)).name.lower() for s in ops.stream]
        templates, first = lowered.program.template.tolist(), lowered.program.rank_start.tolist()
        rows_of = [None if rows is None else rows.tolist() for rows in lowered.rows]
        labels = [stage.tolist() for stage in lowered.labels]
        spans = []
        columns = (recorded.rank, recorded.instance, recorded.op, recorded.start, recorded.end)
        for rank, instance, op, start, end in zip(*(column.tolist() for column in columns), strict=True):
            template = templates[first[rank] + instance]
            rows = rows_of[template] if template >= 0 else None
            if rows is None or (row := rows[op]) < 0 or not shown[row]:
                continue
            task, micro_batch, chunk = labels[rank][instance]
            if task == Task.FORWARD_AND_BACKWARD and not forward[row]:
                chunk, micro_batch = lowered.partners[rank][chunk, micro_batch]
            spans.append(Span(rank, streams[row], ops.names[row], categories[row], start, end, micro_batch, chunk))
        return tuple(spans)


class AllocationCurve(OnDemand[tuple[float, float]]):
    """(second in the step, allocated bytes) of one stage after each of its passes."""

    def __init__(self, job: Job, memory: StageMemory, timeline: StepTimeline) -> None:
        self.job, self.memory, self.timeline = job, memory, timeline

    def _make(self) -> tuple[tuple[float, float], ...]:
        return curve(build(self.job), self.memory, list(_pass_ends(self.timeline.stages[self.memory.stage])))


class CriticalPath(OnDemand[dict[str, object]]):
    """The critical path of a step whose run kept none."""

    def __init__(self, step: WholeStep) -> None:
        self.step = step

    def _make(self) -> tuple[dict[str, object], ...]:
        return self.step.path


def timeline_of(ran: StepRun, step: WholeStep) -> StepTimeline:
    """The timeline of the stages that a run shows; `step`: the same step once more, where the run kept no critical path."""
    return StepTimeline(_stage_times(ran.lowered, ran.timeline) if ran.timeline.path else step)


def path_of(ran: StepRun, step: WholeStep) -> Sequence[dict[str, object]]:
    """The critical path of a run; `step`: the same step once more, where the run kept none."""
    return critical_path(ran.lowered, ran.timeline) if ran.timeline.path else CriticalPath(step)


def _stage_times(lowered: Lowered, timeline: Timeline) -> tuple[StageTimes, ...]:
    program = lowered.program
    starts = program.template_start[:-1]
    host = np.add.reduceat(np.append(program.op_host, 0.0), starts)
    waits = np.add.reduceat(np.append(program.op_sync, 0), starts) > 0
    return tuple(_times(lowered, timeline, stage, host, waits) for stage in range(lowered.stages))


def _times(lowered: Lowered, timeline: Timeline, stage: int, host: Floats, waits: np.ndarray) -> StageTimes:
    """Begins and ends of one stage's instances and launches. A launch lasts from its first kernel to its last, with waits for the
    device inside the pass. `host`: seconds of each template; `waits`: whether the host waits in it."""
    rows = timeline.of_rank(stage)
    template = lowered.program.template[rows]
    launch = np.where(template < 0, np.nan, timeline.host_begin[rows])
    following = np.append(timeline.host_begin[rows][1:], timeline.host_end[stage])
    launched = np.minimum(launch + host[template] * lowered.program.times[rows], following)
    until = np.where(waits[template], following, launched)
    copies = (timeline.begin[rows].copy(), timeline.end[rows].copy())
    return StageTimes(lowered.labels[stage], *copies, launch, until, lowered.partners[stage])


def with_curves(job: Job, memory: tuple[StageMemory, ...], timeline: StepTimeline) -> tuple[StageMemory, ...]:
    """The stages' memory with the allocation after each pass. `job` is that of the workload that ran."""
    return tuple(replace(stage, curve=AllocationCurve(job, stage, timeline)) for stage in memory)


def pass_times(timeline: Sequence[Span], order: Sequence[Action], stage: int) -> list[tuple[float, float]]:
    """Begin and end of a stage's passes in the `order` of its schedule, then of its update. Two passes at once get half of the time
    each."""
    spans: dict[tuple[str, int, int], tuple[float, float]] = {}
    for span in timeline:
        if span.stage == stage and span.stream == "compute":
            key = (span.category, span.micro_batch, span.chunk)
            begin, end = spans.get(key, (span.start, span.end))
            spans[key] = (min(begin, span.start), max(end, span.end))
    times = [spans[NAMES[PASSES[a.direction]], a.micro_batch, a.chunk] for a in order]
    for at, action in enumerate(order[:-1]):
        if action.beside_next and times[at] == times[at + 1]:
            begin, end = times[at]
            times[at], times[at + 1] = (begin, (begin + end) / 2.0), ((begin + end) / 2.0, end)
    return [*times, spans[Task.UPDATE.key, -1, -1]]


def critical_path(lowered: Lowered, timeline: Timeline) -> tuple[dict[str, object], ...]:
    """The critical path, from the step's start to its end: stretches on one stage in time order, with stage, seconds, number of
    instances, and `what` they were, longest first.

    Seconds add up to the step; `parts` splits them by category.
    """
    rows: list[dict[str, object]] = []
    parts: dict[str, float] = {}
    count = 0
    tasks = [labels[:, 0].tolist() for labels in lowered.labels]
    for hop, following in zip(timeline.path, (*timeline.path[1:], None), strict=True):
        what = Task.HOST.key if hop.kind is HopKind.HOST else NAMES[tasks[hop.rank][hop.instance]]
        parts[what] = parts.get(what, 0.0) + hop.seconds
        count += 1
        if following is None or following.rank != hop.rank:
            longest = sorted(parts, key=lambda name: (-parts[name], name))
            seconds = sum(parts.values())
            row: dict[str, object] = {
                "stage": hop.rank % lowered.stages,
                "what": ", ".join(longest),
                "seconds": seconds,
                "count": count,
                "parts": parts,
            }
            if len(lowered.pipelines) > 1:
                row["replicas"] = lowered.pipelines[hop.rank // lowered.stages]
            rows.append(row)
            parts, count = {}, 0
    return tuple(rows)


def _pass_ends(times: StageTimes) -> Iterator[float]:
    """Ends of the passes in schedule order; a pass in several instances ends with the last."""
    passes = [(label, end) for label, _, end in _rows(times) if label[0] in OF_PASSES]
    for (label, end), (following, _) in zip(passes, [*passes[1:], ((-1, -1, -1), 0.0)], strict=True):
        if label != following:
            yield end


def launches(times: StageTimes) -> Iterator[Row]:
    """The host's launch of each pass."""
    for label, since, until in zip(times.labels.tolist(), times.launch_begin.tolist(), times.launch_end.tolist(), strict=True):
        if until > since:
            yield (label[0], label[1], label[2]), since, until


def _rows(times: StageTimes) -> Iterator[Row]:
    """Rows of every instance; two passes at once are two rows with the same times."""
    for (task, micro_batch, chunk), begin, end in zip(times.labels.tolist(), times.begin.tolist(), times.end.tolist(), strict=True):
        if task == Task.FORWARD_AND_BACKWARD:
            other, of = times.partners[chunk, micro_batch]
            yield (int(Task.FORWARD), micro_batch, chunk), begin, end
            yield (int(Task.BACKWARD), of, other), begin, end
        else:
            yield (task, micro_batch, chunk), begin, end


def _title(task: int, micro_batch: int) -> str:
    return f"{NAMES[task]} {micro_batch}" if micro_batch >= 0 else NAMES[task]
