"""The shape of a group of ranks on a machine whose accelerators are joined along dimensions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.network.grids.machine import GridMachine, machine_under
from windtunnel.network.grids.mapping import Axes, axes_of
from windtunnel.network.grids.spans import GridGroup, NotAPart, grid_points, messages_of, spans_of
from windtunnel.network.groups.group import Group
from windtunnel.network.groups.ranks import members
from windtunnel.spec.machine.cluster import Cluster
from windtunnel.workload.ops import Axis

if TYPE_CHECKING:
    from windtunnel.spec.job import Job

_FIELDS = {
    Axis.EP: "ep", Axis.ETP: "etp", Axis.EXPERT_DP: "ep", Axis.EXPERT_SHARD: "ep", Axis.EXPERT_REPLICA: "ep",
    Axis.SHARD: "shard_group", Axis.REPLICA: "shard_group", Axis.NEAR: "secondary_group", Axis.FAR: "secondary_group",
    Axis.CP_HEADS: "cp_sizes", Axis.CP_RING: "cp_sizes",
}  # fmt: skip
"""Fields of a plan that cut an axis, by the axis of the groups that this makes."""


def grid_group(job: Job, axis: Axis, stage: int | None = None) -> Group:
    """Shape of the group of `axis`. Its dimensions are those of the first stage's groups, as stages are alike.

    PlanError names the field of a group that is not the same part of each dimension, and the sizes that are.
    """
    machine = machine_under(job.cluster)
    if axis in (Axis.PP, Axis.EMBEDDING):
        plan = job.plan
        if plan.pp == 1:
            return Group(1, 1, 1, 1, machine.accelerators, "device", 1.0, 1.0)
        stages = [stage] if stage is not None or axis == Axis.EMBEDDING else list(range(plan.pp - 1))
        pairs = [grid_points(machine, axes_of(job), members(job, axis, one)) for one in stages]
        return _pairs(machine, pairs)
    rows = members(job, axis, None if axis == Axis.WORLD else stage or 0)
    chosen = GridGroup((), order=job.runtime.dimension_order, chunks=job.runtime.dimension_chunks)
    try:
        return _shape(machine, axes_of(job), rows, chosen)
    except NotAPart:
        field = _FIELDS.get(Axis(axis), "placement")
        raise PlanError(
            f"plan.{field}",
            getattr(job.plan, field) or rows.shape[1],
            f"groups that are one part of each dimension of {machine.shape}",
            _list_fitting(job, machine, rows),
        ) from None


def _list_fitting(job: Job, machine: GridMachine, rows: Int64s) -> str:
    """Sizes of consecutive ranks that are parts of the dimensions, for the hint."""
    axes, ranks = axes_of(job), np.arange(machine.accelerators)
    sizes = []
    for size in (d for d in range(2, machine.accelerators + 1) if machine.accelerators % d == 0):
        try:
            spans_of(machine, grid_points(machine, axes, ranks.reshape(-1, size)))
        except NotAPart:
            continue
        sizes.append(size)
    inner = np.diff(rows[0]).min(initial=1)
    which = f"Consecutive ranks fit in groups of {', '.join(map(str, sizes[:16]))}."
    return which if inner == 1 else f"{which} These ranks are {inner} apart: divide those by {inner}."


def _pairs(machine: GridMachine, pairs: list[Int64s]) -> Group:
    hops, load = messages_of(machine, pairs)
    return Group(2, 2, 1, 1, machine.accelerators, "node", 1.0, 1.0, GridGroup((), hops, load))


def _shape(machine: GridMachine, axes: Axes, rows: Int64s, chosen: GridGroup) -> Group:
    ranks = rows.shape[1]
    if ranks == 1:
        return Group(1, 1, 1, 1, machine.accelerators, "device", 1.0, 1.0)
    points = grid_points(machine, axes, rows)
    spans = spans_of(machine, points)
    onward = np.stack([points, np.roll(points, -1, axis=1)], axis=2).reshape(-1, 2, points.shape[2])
    hops, load = messages_of(machine, [onward])
    return Group(ranks, ranks, 1, 1, machine.accelerators, "node", 1.0, 1.0, replace(chosen, spans=spans, hops=hops, load=load))


def flat_grid_group(cluster: Cluster, gpus: int) -> Group:
    """Group of the first `gpus` accelerators, or of a slice with as many."""
    if gpus < 1:
        raise SpecError("gpus", gpus, "at least 1")
    machine = machine_under(cluster, gpus if cluster.fabric.slices else None)
    if machine.accelerators % gpus:
        raise SpecError("gpus", gpus, f"a divisor of the {machine.accelerators} accelerators of {machine.shape}")
    axes = (("tp", gpus), ("dp", machine.accelerators // gpus))
    return _shape(machine, axes, np.arange(gpus)[None, :], GridGroup(()))


def shape_on_grid(cluster: Cluster, rows: Int64s, pair: bool = False) -> Group:
    """Shape of groups given as rank ids [groups, ranks] on accelerators in order; `pair`: messages."""
    machine = machine_under(cluster)
    if pair:
        return _pairs(machine, [grid_points(machine, (), rows)])
    try:
        return _shape(machine, (), rows, GridGroup(()))
    except NotAPart:
        raise SpecError(
            "cluster.fabric.builder",
            machine.shape,
            f"a machine on which the {rows.shape[1]} ranks of a group are one part of each dimension",
        ) from None
