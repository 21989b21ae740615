"""Fills blank columns of a row: one rule for all rows, listed as an assumption of each row that it changes.

Recompute: the least of none, selective, full (on one, two, three or all quarters of a stage's layers) with which any candidate fits
the GPU's memory; this needs only the graph, no predicted step. Before full recompute, activations of one to seven
eighths of the layers are offloaded to the host, for recipes that do so (`FrameworkHabits.offloads`). Then virtual stages and micro
batch in turn, from the largest micro batch: the fastest predicted of those that fit, until neither changes. Authors of
benchmark tables do the same. The rule only reads the job; no measured value takes part. If nothing fits, the candidate with the
least missing memory is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict.prediction import Prediction
from windtunnel.reality.jobs.cuts import memory_alone
from windtunnel.reality.jobs.job import ALL_LEVELS, Draft, level_of
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.spec import Job

Predict = Callable[[Job], Prediction]
Memory = Callable[[Job], tuple[float, bool]]
"""Bytes of a job's fullest stage, and whether all of its stages fit."""


def choose(drafted: Draft, predict: Predict, memory: Memory = memory_alone) -> tuple[Prediction, tuple[str, ...]] | Skipped:
    """The prediction for the row's job and all its assumptions; `Skipped` if no candidate can be predicted."""
    try:
        if not drafted.blank:
            return predict(drafted.jobs[0]), drafted.assumed
        fitting, emptiest = _fitting(drafted.jobs, memory)
        if not fitting:
            why = "none fits in memory by the model's count, so the smallest"
            return predict(emptiest), (*drafted.assumed, _assumption(drafted, emptiest, why))
        best = _fastest(fitting, predict)
        return best, (*drafted.assumed, _assumption(drafted, best.job, "the fastest predicted of those that fit in memory"))
    except WindtunnelError as error:
        return Skipped(str(error))


def _fitting(jobs: Sequence[Job], memory: Memory) -> tuple[list[Job], Job]:
    """The jobs that fit at the least recompute at which any fits, smallest first; and the job that needs the least memory.

    If a micro batch fits, so do smaller ones with as many virtual stages: they keep less each, and no more are in flight.
    """
    needs: list[tuple[float, Job]] = []
    for level in dict.fromkeys((*ALL_LEVELS, *map(level_of, jobs))):
        largest: dict[int, int] = {}
        fitting = []
        for job in sorted((job for job in jobs if level_of(job) == level), key=_size, reverse=True):
            if job.plan.micro_batch < largest.get(job.plan.vpp, 0):
                fitting.append(job)
                continue
            needed, fits = memory(job)
            needs.append((needed, job))
            if fits:
                largest[job.plan.vpp] = job.plan.micro_batch
                fitting.append(job)
        if fitting:
            return fitting[::-1], fitting[-1]
    return [], min(needs, key=lambda need: need[0])[1]


def _fastest(jobs: list[Job], predict: Predict) -> Prediction:
    """Chooses virtual stages and micro batch in turn, the fastest each time, until neither changes."""
    predictions: dict[tuple[int, int], Prediction] = {}

    def seconds(job: Job) -> float:
        if _size(job) not in predictions:
            predictions[_size(job)] = predict(job)
        return predictions[_size(job)].step_time_s

    best, before = jobs[-1], None  # a step of few micro batches is the quickest to predict
    while best is not before:
        before = best
        best = min((job for job in jobs if job.plan.micro_batch == best.plan.micro_batch), key=seconds)
        best = min((job for job in jobs if job.plan.vpp == best.plan.vpp), key=seconds)
    seconds(best)
    return predictions[_size(best)]


def _size(job: Job) -> tuple[int, int]:
    return job.plan.micro_batch, job.plan.vpp


def _assumption(drafted: Draft, job: Job, rule: str) -> str:
    some = job.plan.recompute_layers
    modules = job.plan.recompute_modules
    named = job.plan.recompute if modules == ("core_attn",) else f"selective ({', '.join(modules)})"
    recompute = named if some is None else f"{job.plan.recompute} on {some} layers of a virtual stage"
    if job.plan.offload.activations:
        recompute = f"none, activations of {job.plan.offload.activations} layers to the host"
    values = {
        "recompute": recompute,
        "modules of selective recompute": ", ".join(modules),
        "micro batch": str(job.plan.micro_batch),
        "virtual stages": str(job.plan.vpp),
    }
    chosen = ", ".join(f"{name} {values[name]}" for name in drafted.blank)
    return f"{chosen} (not published: {rule}, {len(drafted.jobs)} candidates)"
