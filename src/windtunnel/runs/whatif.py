"""What a measured step would take with one thing changed: the measured graph is kept, and only that is altered and replayed.

Every answer says what of it was measured and what was modelled.

How the kernels of a measured step go from one machine to another: by the ratio of what the kernel models say of both.

The ratio of peaks promises too much: a faster GPU reaches a smaller share of its peak on the same shapes.

What a measured step would take with another degree of parallelism: its job is calibrated on the run itself, and the measured
step goes the way of the job's predictions.

A trace of one degree holds no kernels and messages of another: layers would be cut elsewhere, shards and messages have other sizes.
So the run gives what a job's kernels, calls and host really achieve, and the model writes the other plan with that.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network.closed.collective import collective
from windtunnel.network.groups.shape import members, shape_of
from windtunnel.predict import predict
from windtunnel.predict.price.calibrated import kernel_name
from windtunnel.records.run import Run
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.replay.options import ReplayOptions
from windtunnel.replay.run import replay
from windtunnel.runs.axes import ASKED
from windtunnel.runs.calibrate import CalibrationFit, fit
from windtunnel.runs.observed import label_class, observe
from windtunnel.spec import Job, check, dump_job, load_job
from windtunnel.spec.calibration import KernelFactors
from windtunnel.spec.machine import GPU, Cluster
from windtunnel.traces.graph import HOST_GAP, LAUNCH_DELAY, graph_of
from windtunnel.workload import Axis, Kind

CHANGES = (
    "scale:CLASS=F, scale:/PATTERN/=F, remove:CLASS, remove:/PATTERN/, fp8, gpu=NAME, network=CLUSTER, cluster=CLUSTER, "
    + "no-host-gaps, no-stragglers, or dp=, pp=, tp=, cp=, ep=N"
)
"""What may be typed as a change."""


@dataclass(frozen=True)
class TracedMachine:
    """Where the run was measured; needed by changes of GPU and network only. `job`: what ran, for degrees of parallelism."""

    gpu: GPU | None = None
    cluster: Cluster | None = None
    job: Job | None = None


@dataclass(frozen=True)
class TraceChange:
    """One change of a graph's seconds. `measured`, `modelled`: what the answer rests on."""

    text: str
    apply: Callable[[TraceGraph, Floats], Floats]
    measured: str
    modelled: str


@dataclass(frozen=True)
class WhatIf:
    """Seconds of the measured step, of its unchanged replay, and of the changed one; how many tasks the change touched."""

    text: str
    measured: float
    replayed: float
    changed: float
    touched: int
    basis_measured: str
    basis_modelled: str

    @property
    def answer(self) -> float:
        """The measured step with the change: the difference of the two replays on the measured step."""
        return self.measured + (self.changed - self.replayed)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds."""
        return {**vars(self), "answer": self.answer}


def what_if(run: Run, changes: Sequence[str], machine: TracedMachine | None = None, step: int | None = None) -> tuple[WhatIf, ...]:
    """Each change alone on the run, or on one step of it. SpecError for a change that is not understood."""
    graph, machine = graph_of(run, step), machine or TracedMachine()
    degrees = {text for text in changes if text.partition("=")[0] in DEGREES}
    if degrees and machine.job is None:
        raise SpecError("--job", "nothing", "the job of the run", f"{min(degrees)} needs it.")
    plans = OtherPlans(run, machine.job) if machine.job is not None else None
    parsed = {text: change_of(text, machine) for text in changes if text not in degrees}
    size = max(int(graph.numbers.max(initial=0)), max((max(ranks) for ranks in graph.groups if ranks), default=0)) + 1
    base = _end(graph, graph.seconds, size)
    measured = _measured_seconds(graph)
    rows = []
    for text in changes:
        if plans is not None and text in degrees:
            rows.append(_under_plan(text, plans, measured, len(graph)))
            continue
        change = parsed[text]
        seconds = change.apply(graph, graph.seconds.copy())
        touched = int(np.count_nonzero(seconds != graph.seconds))
        rows.append(WhatIf(change.text, measured, base, _end(graph, seconds, size), touched, change.measured, change.modelled))
    return tuple(rows)


def _under_plan(text: str, plans: OtherPlans, measured: float, tasks: int) -> WhatIf:
    """The measured step under another plan."""
    degree, _, value = text.partition("=")
    found = plans.answer(degree, value)
    return WhatIf(text, measured, measured, measured * found.ratio, tasks, found.measured, found.modelled)


def _measured_seconds(graph: TraceGraph) -> float:
    """Seconds from the first task's begin to the last one's end, as the traces have them."""
    ends = graph.begin + np.nan_to_num(graph.seconds)
    return float(ends.max(initial=0.0) - graph.begin.min(initial=0.0)) if len(graph.begin) else float("nan")


def _end(graph: TraceGraph, seconds: Floats, size: int) -> float:
    from windtunnel.spec.loading.load import load_cluster

    cluster = load_cluster("h100-ib", [f"gpus={max(8, -(-size // 8) * 8)}"])  # only holds the ranks: calls take the trace's time
    result = replay(replace(graph, seconds=seconds), cluster, ReplayOptions(calls="trace"))
    if result.stuck:
        raise SpecError("RUN", result.stuck[0], "a run whose graph can be replayed")
    return result.end


def change_of(text: str, machine: TracedMachine) -> TraceChange:
    """A change as it is typed."""
    head, _, value = text.partition("=")
    if head.startswith("scale:"):
        factor = _number(text, value)
        return _scale_change(text, head[6:], factor, f"stated: {factor:g} times the measured time")
    if text.startswith("remove:"):
        return _scale_change(text, text[7:], 0.0, "nothing else is changed")
    if text == "fp8":
        gpu = _gpu(machine, text)
        rates = gpu.peak
        if "fp8" not in rates or "bf16" not in rates:
            raise SpecError("--change", text, "a GPU with fp8 and bf16", f"{gpu.name} has {', '.join(rates)}.")
        ratio = rates["bf16"] / rates["fp8"]
        return _scale_change(
            text, "gemm", ratio, f"matrix products by the ratio of the peaks, {ratio:g}; casts to fp8 are not added"
        )
    if head == "gpu":
        from windtunnel.spec.loading.load import load_gpu

        ratios = kernel_ratios(machine.job, _gpu(machine, text), load_gpu(value))
        kept = "calls (the scale-up links and NICs of the trace stay: cluster=CLUSTER changes them too), launches and gaps"
        return TraceChange(text, partial(_by_class, ratios), kept, _describe_ratios(ratios, machine.job))
    if head == "network":
        return _other_network(text, value, machine)
    if head == "cluster":
        return _other_cluster(text, value, machine)
    if text == "no-host-gaps":
        return TraceChange(
            text, _without_gaps, "all kernels, calls and launches", "the host never stands still and launches at once"
        )
    if text == "no-stragglers":
        return TraceChange(
            text, _level_kernels, "all times of the median rank", "kernels of the same name take that rank's mean time on all"
        )
    raise SpecError("--change", text, CHANGES)


def _number(text: str, value: str) -> float:
    try:
        factor = float(value)
    except ValueError:
        raise SpecError("--change", text, "a number behind =") from None
    if not 0.0 <= factor <= 1000.0:
        raise SpecError("--change", text, "a factor from 0 to 1000")
    return factor


def _gpu(machine: TracedMachine, text: str) -> GPU:
    if machine.gpu is None and machine.job is not None:
        return machine.job.cluster.gpu
    if machine.gpu is None:
        raise SpecError("--from", "nothing", "the GPU of the trace", f"{text} needs it.")
    return machine.gpu


def _scale_change(text: str, which: str, factor: float, modelled: str) -> TraceChange:
    def apply(graph: TraceGraph, seconds: Floats) -> Floats:
        return np.where(_choose_kernels(graph, which), seconds * factor, seconds)

    return TraceChange(text, apply, "all other kernels, calls, launches and gaps", modelled)


def _choose_kernels(graph: TraceGraph, which: str) -> Bools:
    """Kernels of a class, or whose names hold a /pattern/."""
    if len(which) > 2 and which[0] == which[-1] == "/":
        try:
            pattern = re.compile(which[1:-1])
        except re.error as error:
            raise SpecError("--change", which, f"a regular expression ({error})") from None
        named = np.array([pattern.search(name) is not None for name in graph.names] or [False])
    else:
        if which not in KernelFactors.model_fields:
            raise UnknownName("--change", which, list(KernelFactors.model_fields))
        named = np.array([label_class(name) == which for name in graph.names] or [False])
    return np.asarray(named[graph.name] & _kernels(graph))


def _kernels(graph: TraceGraph) -> Bools:
    return np.asarray((graph.kind == TaskKind.COMPUTE) & ~graph.on_host)


def _by_class(ratios: dict[str, float], graph: TraceGraph, seconds: Floats) -> Floats:
    factor = np.array([ratios.get(label_class(one), 1.0) for one in graph.names] or [1.0])
    return np.where(_kernels(graph), seconds * factor[graph.name], seconds)


def _describe_ratios(ratios: dict[str, float], job: Job | None) -> str:
    shapes = "the job's shapes" if job is not None else f"shapes of {USUAL_JOB} (--job: those of the run)"
    factors = ", ".join(f"{name} x {ratio:.3g}" for name, ratio in ratios.items())
    return f"kernels by the kernel models of both GPUs on {shapes}: {factors}"


def _other_network(text: str, name: str, machine: TracedMachine) -> TraceChange:
    """Every call whose bytes and ranks are known, by the ratio of its closed-form times on the two clusters."""
    from windtunnel.spec.loading.load import load_cluster

    source = _cluster(machine)
    target = load_cluster(name, [f"gpus={source.gpus}"])
    return TraceChange(
        text, partial(_by_call, source, target, machine.job), "kernels, launches, gaps; each call's time on its own network",
        "the ratio of each call's closed forms",
    )  # fmt: skip


def _other_cluster(text: str, name: str, machine: TracedMachine) -> TraceChange:
    """GPU, scale-up links and network of another cluster."""
    from windtunnel.spec.loading.load import load_cluster

    source = _cluster(machine)
    target = load_cluster(name, [f"gpus={source.gpus}"])
    ratios = kernel_ratios(machine.job, source.gpu, target)

    def apply(graph: TraceGraph, seconds: Floats) -> Floats:
        return _by_call(source, target, machine.job, graph, _by_class(ratios, graph, seconds))

    modelled = f"{_describe_ratios(ratios, machine.job)}; calls by the ratio of their closed forms"
    return TraceChange(text, apply, "launches and gaps", modelled)


def _cluster(machine: TracedMachine) -> Cluster:
    if machine.cluster is not None:
        return machine.cluster
    if machine.job is not None:
        return machine.job.cluster
    raise SpecError("--on", "nothing", "the cluster of the trace, or --job its job")


def _by_call(source: Cluster, target: Cluster, job: Job | None, graph: TraceGraph, seconds: Floats) -> Floats:
    ratios: dict[tuple[int, float, int], float] = {}
    settings = {} if job is None else job.runtime.nccl
    out = seconds.copy()
    rows = np.flatnonzero((graph.kind == TaskKind.COLLECTIVE) & (graph.group >= 0) & np.isfinite(graph.bytes))
    for row in rows.tolist():
        key = (int(graph.comm[row]), float(graph.bytes[row]), int(graph.group[row]))
        if key not in ratios:
            ranks, comm = groups_beside(graph.groups[key[2]], job), Comm(key[0])
            pair = comm is Comm.SEND_RECV and ranks.shape[1] == 2
            there, here = (
                collective(one, comm, key[1], shape_of(one, ranks, pair), settings=settings).seconds for one in (target, source)
            )
            ratios[key] = there / here if here > 0 else 1.0
        out[row] *= ratios[key]
    return out


def _without_gaps(graph: TraceGraph, seconds: Floats) -> Floats:
    gaps = np.array([name in (HOST_GAP, LAUNCH_DELAY) for name in graph.names] or [False])[graph.name]
    return np.where(gaps & graph.on_host, 0.0, seconds)


def _level_kernels(graph: TraceGraph, seconds: Floats) -> Floats:
    """Each kernel of a rank times (the median rank's mean for its name) over (the rank's mean for its name)."""
    kernels, rank = _kernels(graph), graph.rank_of()
    names, ranks = len(graph.names), graph.ranks
    if ranks < 2:
        return seconds
    place = rank.astype(np.int64) * names + graph.name
    total = np.bincount(place[kernels], seconds[kernels], ranks * names).reshape(ranks, names)
    count = np.bincount(place[kernels], minlength=ranks * names).reshape(ranks, names)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
    known = ~np.isnan(mean).all(axis=0)
    middle = np.full(names, np.nan)
    middle[known] = np.nanmedian(mean[:, known], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.nan_to_num(middle[None, :] / mean, nan=1.0, posinf=1.0)
    return np.where(kernels, seconds * factor[rank, graph.name], seconds)


USUAL_JOB = "llama3-8b-8xh100"
"""Whose shapes stand for those of a run whose job is not named."""


def kernel_ratios(job: Job | None, source: GPU, target: Cluster | GPU) -> dict[str, float]:
    """Class of `KernelFactors` -> seconds of its kernels in a step of the job on the target over those on the source.

    Without a job, of the usual one: in fp16 where one of the two has no bf16.
    """
    gpu = target.gpu if isinstance(target, Cluster) else target
    narrow = ["runtime.precision=fp16"] if "bf16" not in set(gpu.peak) & set(source.peak) else []
    base = load_job(USUAL_JOB, narrow) if job is None else job
    there = target if isinstance(target, Cluster) and job is not None else with_gpu(base.cluster, gpu)
    here = base.cluster if job is not None and job.cluster.gpu == source else with_gpu(base.cluster, source)
    one, other = (_class_seconds(_on(base, cluster)) for cluster in (here, there))
    return {name: other[name] / seconds for name, seconds in one.items() if seconds > 0.0 and name in other}


def groups_beside(ranks: tuple[int, ...], job: Job | None) -> Int64s:
    """[groups, ranks]: the group of a call and those that make it at the same time, under the placement of a job; the call's alone
    where no job is named or its plan has no such group."""
    mine = np.array([sorted(ranks)], np.int64)
    if job is None:
        return mine
    transfers = [(Axis.PP, stage) for stage in range(job.plan.pp)] if len(ranks) == 2 and job.plan.pp > 1 else []
    for axis, stage in (*((axis, None) for axis in ASKED), *transfers):
        try:
            listed = members(job, axis, stage)
        except SpecError:
            continue
        if listed.shape[1] == len(ranks) and (np.sort(listed, axis=1) == mine).all(axis=1).any():
            return listed
    return mine


def with_gpu(cluster: Cluster, gpu: GPU) -> Cluster:
    """`cluster` with another GPU in its nodes."""
    return cluster.model_copy(update={"node": cluster.node.model_copy(update={"gpu": gpu})})


def _on(job: Job, cluster: Cluster) -> Job:
    """The job on another machine with as many GPUs, without what was measured on its own."""
    return check(job.model_copy(update={"cluster": cluster, "calibration": None, "unequal": None}))


def _class_seconds(job: Job) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for row in predict(job).kernels:
        seconds[label_class(kernel_name(int(Kind[row.kind.upper()]), row.name))] += row.seconds_total
    return seconds


DEGREES = ("dp", "pp", "tp", "cp", "ep")


@dataclass(frozen=True)
class PlanAnswer:
    """`ratio`: the predicted step under the other plan over that under the run's own, both calibrated on the run."""

    ratio: float
    measured: str
    modelled: str


@dataclass(frozen=True)
class OtherPlans:
    """Answers for `run`, of `job`. The run is calibrated once."""

    run: Run
    job: Job

    @cached_property
    def _fit(self) -> CalibrationFit:
        observed = observe(self.run, self.job)
        if not observed.kernels:
            raise SpecError("RUN", self.run.source, "a run with kernels", "Degrees follow from what its kernels achieve.")
        return fit(observed, self.job)

    def answer(self, degree: str, value: str) -> PlanAnswer:
        """Another `degree` of DEGREES. `dp`: as many replicas, each with the micro batches that it has, so that GPUs and the global
        batch grow; the others on the same GPUs with the same global batch, so that dp gives way. PlanError or SpecError for a
        plan that cannot be."""
        text = f"{degree}={value}"
        if not value.isdigit() or not 1 <= int(value[:9]) < 10**6:
            raise SpecError("--change", text, "a whole number from 1 on")
        own, count = self.job, int(value)
        changes = [f"plan.{degree}={count}"]
        if degree == "dp":
            changes += [
                f"cluster.gpus={own.cluster.gpus // own.dp * count}",
                f"plan.global_batch={own.plan.global_batch // own.dp * count}",
            ]
        check(load_job(tomllib.loads(dump_job(own)), changes))  # before the fit, which takes its time
        tuned = own.model_copy(update={"calibration": self._fit.calibration})
        other = check(load_job(tomllib.loads(dump_job(tuned)), changes))
        ratio = predict(other).step_time_s / predict(check(tuned)).step_time_s
        factors = sum(1 for one in self._fit.factors.factors if one.samples)
        kept = (
            f"{other.cluster.gpus:,} GPUs in place of {own.cluster.gpus:,}, global batch {other.plan.global_batch:,}"
            if degree == "dp"
            else f"the same GPUs and global batch, so that dp is {other.dp} in place of {own.dp}"
        )
        return PlanAnswer(
            ratio,
            f"the step; {factors} factors of kernels, calls and host fitted to the run",
            f"how the other plan cuts and schedules the work, and the sizes of its calls; {kept}",
        )
