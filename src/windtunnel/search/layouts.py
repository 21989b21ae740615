"""Shared by searches over layouts: degrees to try, nearly equal stages, parameters that expert parallelism divides."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from windtunnel.predict.ranks.places import ranks_of
from windtunnel.spec import Job, Model
from windtunnel.workload import active_parameters, parameter_count


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, … up to `most`."""
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def even_stages(layers: int, parts: int) -> tuple[int, ...] | None:
    """Layers of each stage, the first ones with one more; None where they divide evenly."""
    base, extra = divmod(layers, parts)
    return tuple(base + (stage < extra) for stage in range(parts)) if extra else None


def lighter_ends(job: Job) -> Iterator[tuple[int, ...]]:
    """Layers of each (virtual) stage with fewer on the first, which has the embedding, or on the last, which has the head."""
    parts = job.plan.pp * job.plan.vpp
    if job.plan.pp == 1 or job.model.layers < parts:
        return
    for less_first, less_last in ((0, 1), (1, 0), (1, 1), (0, 2), (2, 1), (1, 2), (2, 2)):
        stages = lighter_stages(job.model.layers, parts, less_first, less_last)
        if stages is not None and stages != job.plan.stages:
            yield stages


def lighter_stages(layers: int, parts: int, less_first: int, less_last: int) -> tuple[int, ...] | None:
    """Layers of each stage, with so many fewer on the first and the last; None where a stage would have fewer than none."""
    base, extra = divmod(layers + less_first + less_last, parts)
    stages = [base + (part >= parts - extra) for part in range(parts)]
    stages[0] -= less_first
    stages[-1] -= less_last
    return tuple(stages) if min(stages) >= 0 else None


def expert_parameters(model: Model) -> float:
    """Parameters of all routed experts, from those that a token does not use."""
    if model.experts is None or model.experts <= model.top_k:
        return 0.0
    return (parameter_count(model) - active_parameters(model)) * model.experts / (model.experts - model.top_k)


def stages_by_speed(job: Job, pp: int, vpp: int) -> tuple[int, ...] | None:
    """Layers of each virtual stage in proportion to the speed of its slowest GPU, by peak rates and stated factors; None where all
    are equally fast. Layers go one by one to the stage that would be done with them first."""
    if job.unequal is None or pp == 1 or job.copies > 1:
        return None
    ranks = ranks_of(job, job.unequal, np.zeros(len(job.unequal.links), np.bool_))
    peaks = np.array([cluster.gpu.peak.get(job.runtime.precision, math.nan) for cluster in ranks.clusters])
    speed = peaks[ranks.kind] / (ranks.slow * ranks.product)
    slowest = np.array([speed[ranks.places.stage == stage].min() for stage in range(pp)])
    if np.allclose(slowest, slowest[0]) or not np.isfinite(slowest).all():
        return None
    stage_of = {part: stage for stage, parts in enumerate(job.places) for part in parts}
    layers, of_stage = [0] * len(stage_of), [0] * pp
    for _ in range(job.model.layers):
        stage = min(range(pp), key=lambda s: ((of_stage[s] + 1) / slowest[s], s))
        part = min((p for p in stage_of if stage_of[p] == stage), key=lambda p: (layers[p], p))
        layers[part] += 1
        of_stage[stage] += 1
    return tuple(layers)
