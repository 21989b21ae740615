"""Model parallelism that a row leaves open: which cuts are tried, in which order, and whether a job fits in memory."""

from __future__ import annotations

from windtunnel.memory import memory_of
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import Cluster, Job, Model
from windtunnel.workload import build

MOST_STAGES = 32
"""Pipeline stages that are tried where a row states no plan."""


def memory_alone(job: Job) -> tuple[float, bool]:
    """Bytes of the fullest stage by the model, without a prediction of time, and whether all stages fit."""
    stages = memory_of(job, build(job))
    return max(stage.total for stage in stages), all(stage.fits for stage in stages)


def cuts(row: TrainingRow, model: Model, cluster: Cluster) -> list[tuple[int, int]]:
    """(tp, pp) that the row leaves open, the smallest product first, and of those the most tensor parallelism."""
    gpus, gbs = row.gpus or 1, row.gbs or 1
    powers = [2**power for power in range(8)]
    tensor = (row.tp,) if row.tp else tuple(tp for tp in powers if tp <= cluster.node.gpus and model.heads % tp == 0)
    stages = (row.pp,) if row.pp else tuple(pp for pp in powers if pp == 1 or (pp <= MOST_STAGES and model.layers % pp == 0))
    cuts = [(tp, pp) for tp in tensor for pp in stages if gpus % (tp * pp * (row.cp or 1)) == 0]
    whole = [cut for cut in cuts if gbs % (gpus // (cut[0] * cut[1] * (row.cp or 1))) == 0]
    return sorted(whole, key=lambda cut: (cut[0] * cut[1], cut[1]))


def spread(model: Model, cluster: Cluster, ranks: int) -> int:
    """Expert parallelism over a scale-up domain, as far as experts and ranks divide."""
    return max(ep for ep in (1, 2, 4, 8, 16, 32, 64) if ep <= cluster.domain and (model.experts or 1) % ep == ranks % ep == 0)
