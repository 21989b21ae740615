"""Ranks of each group of an axis, from the plan's sizes and its placement order (innermost axis first)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.workload.ops import Axis

if TYPE_CHECKING:
    from windtunnel.spec.job import Job

_PLAN_AXES = {Axis.TP: "tp", Axis.CP: "cp", Axis.CP_HEADS: "cp", Axis.CP_RING: "cp", Axis.DP: "dp"}
_STAGE = ("dp", "cp", "tp")
_STATE = (Axis.SHARD, Axis.REPLICA, Axis.NEAR, Axis.FAR)
EXPERTS = {Axis.EXPERT_DP: 1, Axis.EXPERT_SHARD: 1, Axis.EXPERT_REPLICA: 1, Axis.EP: 2, Axis.ETP: 3}
"""Expert axes, and the dimension of (copies, ep, etp) that each runs along."""

_JOINED = {**dict.fromkeys(_STATE, ("dp", "cp")), **dict.fromkeys(EXPERTS, _STAGE), Axis.WORLD: ("dp", "cp", "tp", "pp")}


def members(job: Job, axis: Axis, stage: int | None = None) -> Int64s:
    """Ranks of every group of `axis` [groups, ranks]; with `stage`, of those that pipeline stage takes part in.

    PP gives pairs of a rank and its neighbour in the next stage (of the last stage: in the first), EMBEDDING pairs of the first and
    the last stage. Raises SpecError for NONE.
    """
    plan = job.plan
    return rows_of(
        Axis(axis),
        {"tp": plan.tp, "cp": plan.cp, "dp": job.dp, "pp": plan.pp},
        plan.placement,
        job.shard_ranks,
        plan.ep,
        stage,
        plan.etp,
        job.cp_sizes[0],
        job.near_ranks,
        job.expert_shard_ranks,
    )


def rows_of(
    axis: Axis,
    sizes: dict[str, int],
    placement: tuple[str, ...],
    shard: int,
    ep: int,
    stage: int | None = None,
    etp: int = 1,
    swap: int = 1,
    near: int = 1,
    experts: int = 1,
) -> Int64s:
    """As `members`, of a plan given by its numbers. Experts' axes cut a stage's ranks: etp innermost, then ep, then copies; of the
    context-parallel ranks the innermost `swap` exchange heads; of `shard` ranks that share state `near` are close, of those with
    the same experts `experts` share state."""
    order = [a for a in reversed(placement) if a in sizes]
    if axis == Axis.NONE or sorted(order) != sorted(sizes):
        raise SpecError("axis", axis.name, "an axis of the plan, with a placement that names tp, cp, dp, pp once")
    grid = np.arange(int(np.prod(list(sizes.values()))), dtype=np.int64).reshape([sizes[a] for a in order])
    if axis in (Axis.PP, Axis.EMBEDDING):
        stages = np.moveaxis(grid, order.index("pp"), 0).reshape(sizes["pp"], -1)
        if axis == Axis.EMBEDDING:
            senders, receivers = stages[:1], stages[-1:]
        elif stage is not None:
            senders, receivers = stages[stage % len(stages)][None], stages[(stage + 1) % len(stages)][None]
        else:
            senders, receivers = stages[:-1], stages[1:]
        return np.stack([senders.ravel(), receivers.ravel()], axis=1)
    inner_axes = [a for a in order if a in _JOINED.get(axis, (_PLAN_AXES.get(axis, ""),))]
    if stage is not None and "pp" not in inner_axes:
        grid = np.take(grid, [stage], axis=order.index("pp"))
    rest = [a for a in order if a not in inner_axes]
    rows = np.transpose(grid, [order.index(a) for a in rest + inner_axes])
    rows = rows.reshape(-1, int(np.prod([sizes[a] for a in inner_axes], dtype=np.int64)))
    if axis in EXPERTS and rows.shape[1] % (ep * etp) == 0:
        cut = rows.reshape(rows.shape[0], -1, ep, etp)
        rows = np.moveaxis(cut, EXPERTS[axis], 3).reshape(-1, cut.shape[EXPERTS[axis]])
    if axis in (Axis.SHARD, Axis.NEAR, Axis.FAR):
        rows = rows.reshape(-1, shard)
    inner = {
        Axis.CP_HEADS: swap,
        Axis.CP_RING: swap,
        Axis.REPLICA: shard,
        Axis.NEAR: near,
        Axis.FAR: near,
        Axis.EXPERT_SHARD: experts,
        Axis.EXPERT_REPLICA: experts,
    }.get(axis)
    if inner is None:
        return rows
    if axis in (Axis.CP_HEADS, Axis.NEAR, Axis.EXPERT_SHARD):
        return rows.reshape(-1, inner)
    return np.swapaxes(rows.reshape(rows.shape[0], -1, inner), 1, 2).reshape(-1, rows.shape[1] // inner)
