"""How the kernels of a measured step go from one machine to another: by the ratio of what the kernel models say of both.

The ratio of peaks promises too much: a faster GPU reaches a smaller share of its peak on the same shapes.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.groups.ranks import members
from windtunnel.predict import predict
from windtunnel.predict.price.calibrated import kernel_name
from windtunnel.runs.axes import ASKED
from windtunnel.runs.observed import label_class
from windtunnel.spec import Job, check, load_job
from windtunnel.spec.machine.cluster import GPU, Cluster
from windtunnel.workload import Axis, Kind

USUAL_JOB = "llama3-8b-8xh100"
"""Whose shapes stand for those of a run whose job is not named."""


def kernel_ratios(job: Job | None, source: GPU, target: Cluster | GPU) -> dict[str, float]:
    """Class of `KernelFactors` -> seconds of its kernels in a step of the job on the target over those on the source."""
    base = load_job(USUAL_JOB) if job is None else job
    gpu = target.gpu if isinstance(target, Cluster) else target
    there = target if isinstance(target, Cluster) and job is not None else _with_gpu(base.cluster, gpu)
    here = base.cluster if job is not None and job.cluster.gpu == source else _with_gpu(base.cluster, source)
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


def _with_gpu(cluster: Cluster, gpu: GPU) -> Cluster:
    return cluster.model_copy(update={"node": cluster.node.model_copy(update={"gpu": gpu})})


def _on(job: Job, cluster: Cluster) -> Job:
    """The job on another machine with as many GPUs, without what was measured on its own."""
    return check(job.model_copy(update={"cluster": cluster, "calibration": None, "unequal": None}))


def _class_seconds(job: Job) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for row in predict(job).kernels:
        seconds[label_class(kernel_name(int(Kind[row.kind.upper()]), row.name))] += row.seconds_total
    return seconds
