"""Shared by searches over layouts: degrees to try, nearly equal stages, parameters that expert parallelism divides."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.spec import Job, Model
from windtunnel.workload import active_parameters, parameter_count


def powers(most: int) -> list[int]:
    """1, 2, 4, … up to `most`."""
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def even(layers: int, parts: int) -> tuple[int, ...] | None:
    """Layers of each stage, the first ones with one more; None where they divide evenly."""
    base, extra = divmod(layers, parts)
    return tuple(base + (stage < extra) for stage in range(parts)) if extra else None


def lighter_ends(job: Job) -> Iterator[tuple[int, ...]]:
    """Layers of each (virtual) stage with fewer on the first, which has the embedding, or on the last, which has the head."""
    parts = job.plan.pp * job.plan.vpp
    if job.plan.pp == 1 or job.model.layers < parts:
        return
    for less_first, less_last in ((0, 1), (1, 0), (1, 1), (0, 2), (2, 1), (1, 2), (2, 2)):
        stages = fewer(job.model.layers, parts, less_first, less_last)
        if stages is not None and stages != job.plan.stages:
            yield stages


def fewer(layers: int, parts: int, less_first: int, less_last: int) -> tuple[int, ...] | None:
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
