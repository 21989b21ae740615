"""The shape of a communication group: its ranks, and how they are spread over nodes, leaves and pods.

A rank's place follows from the plan's placement order (innermost axis first) and from the size of the node. All groups of an axis
are compared, and the shape returned is that of the group that spans most nodes, since groups wait for the slowest one.

The shape of a group of ranks on a machine whose accelerators are joined along dimensions. The shape of a communication group.

Ranks of each group of an axis, from the plan's sizes and its placement order (innermost axis first).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.network.fabrics.drawn import check_room, levels_of
from windtunnel.network.grids.machine import Axes, GridMachine, axes_of, machine_under
from windtunnel.network.grids.spans import GridGroup, NotAPart, grid_points, messages_of, spans_of
from windtunnel.spec.machine import Cluster
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


Span = Literal["device", "node", "leaf", "pod", "core"]


@dataclass(frozen=True)
class Group:
    """Shape of one communication group. A domain is a node, or a scale-up domain that spans several."""

    ranks: int
    """GPUs of the group."""
    per_node: int
    """Most GPUs of the group in one domain."""
    nodes: int
    """Domains that the group spans."""
    sharing: int = 1
    """Groups of the same axis that send through the NICs of one domain at the same time."""
    gpus_per_node: int = 8
    """GPUs in a domain."""
    span: Span = "node"
    """The farthest switch level that the group crosses."""
    per_leaf: float = 0.0
    """Domains of the group below one leaf (0: as many as fit). Of a pair: how many of the GPUs there send for each one whose
    message leaves the leaf."""
    per_pod: float = 0.0
    """The same of a pod."""
    grid: GridGroup | None = None
    """Its place on a machine whose accelerators are joined along dimensions."""


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
        return _grid_shape(machine, axes_of(job), rows, chosen)
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


def _grid_shape(machine: GridMachine, axes: Axes, rows: Int64s, chosen: GridGroup) -> Group:
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
    return _grid_shape(machine, axes, np.arange(gpus)[None, :], GridGroup(()))


def shape_on_grid(cluster: Cluster, rows: Int64s, pair: bool = False) -> Group:
    """Shape of groups given as rank ids [groups, ranks] on accelerators in order; `pair`: messages."""
    machine = machine_under(cluster)
    if pair:
        return _pairs(machine, [grid_points(machine, (), rows)])
    try:
        return _grid_shape(machine, (), rows, GridGroup(()))
    except NotAPart:
        raise SpecError(
            "cluster.fabric.builder",
            machine.shape,
            f"a machine on which the {rows.shape[1]} ranks of a group are one part of each dimension",
        ) from None


_ORDER: tuple[Span, ...] = ("node", "leaf", "pod", "core")


def group(job: Job, axis: Axis, stage: int | None = None) -> Group:
    """Shape of the group that a communication row of `axis` runs over.

    PP is the pair of neighbouring stages (from `stage` to the next one, or the pair that is farthest apart), EMBEDDING the pair of
    first and last stage; SHARD the innermost `job.shard_ranks` of dp x cp, REPLICA the rest of dp x cp. Raises SpecError for NONE,
    and for a fabric with fewer ports than the job's nodes need.
    """
    plan, cluster = job.plan, job.cluster
    if cluster.fabric.is_grid:
        return grid_group(job, axis, stage)
    levels = levels_of(cluster)
    check_room(cluster, -(-cluster.gpus // cluster.node.gpus))
    of_experts = axis in EXPERTS  # other groups are the same whatever the experts' degrees
    return _shape(
        Axis(axis),
        plan.tp,
        plan.cp,
        plan.ep if of_experts else 1,
        plan.etp if of_experts else 1,
        job.dp,
        plan.pp,
        job.shard_ranks,
        tuple(plan.placement),
        cluster.gpus,
        cluster.domain,
        cluster.node.gpus,
        levels.leaf_nodes,
        levels.pod_nodes,
        stage,
        job.cp_sizes[0],
        job.near_ranks,
        job.expert_shard_ranks if of_experts else 1,
    )


def flat_group(cluster: Cluster, gpus: int, per_node: int | None = None, sharing: int = 1) -> Group:
    """Group of `gpus` consecutive GPUs, or of the first `per_node` of each domain (what nccl-tests runs)."""
    if cluster.fabric.is_grid:
        return flat_grid_group(cluster, gpus)
    domain = cluster.domain
    here = min(gpus, domain, per_node or domain)
    if gpus < 1 or here < 1:
        raise SpecError("gpus", gpus, "at least 1")
    ids = (np.arange(gpus) // here) * domain + np.arange(gpus) % here
    levels = levels_of(cluster)
    check_room(cluster, int(ids[-1]) // cluster.node.gpus + 1)
    return _describe(ids[None, :], sharing, domain, cluster.node.gpus, levels.leaf_nodes, levels.pod_nodes)


def shape_of(cluster: Cluster, rows: Int64s, pair: bool = False) -> Group:
    """Shape of groups given as rank ids [groups, ranks]: all groups that communicate at the same time, so that what they share is
    counted; `pair`: messages from the first rank of each row to the second."""
    if cluster.fabric.is_grid:
        return shape_on_grid(cluster, rows, pair)
    levels, node = levels_of(cluster), cluster.node
    return _describe(rows, None, cluster.domain, node.gpus, levels.leaf_nodes, levels.pod_nodes, pair)


@lru_cache(maxsize=4096)
def _shape(
    axis: Axis,
    tp: int,
    cp: int,
    ep: int,
    etp: int,
    dp: int,
    pp: int,
    shard: int,
    placement: tuple[str, ...],
    gpus: int,
    domain: int,
    server: int,
    leaf: int,
    pod: int,
    stage: int | None,
    swap: int,
    near: int,
    experts: int,
) -> Group:
    if axis in (Axis.PP, Axis.EMBEDDING) and pp == 1:
        return Group(1, 1, 1, 1, min(domain, tp * cp * dp), "device", 1.0, 1.0)
    rows = rows_of(axis, {"tp": tp, "cp": cp, "dp": dp, "pp": pp}, placement, shard, ep, stage, etp, swap, near, experts)
    return _describe(rows, None, domain, server, leaf, pod, pair=axis in (Axis.PP, Axis.EMBEDDING))


def _describe(rows: Int64s, sharing: int | None, domain: int, server: int, leaf: int, pod: int, pair: bool = False) -> Group:
    """Shape of the widest of the groups in `rows` (groups x ranks, rank ids)."""
    ranks = rows.shape[1]
    present = min(domain, int(rows.max()) + 1)
    if ranks == 1:
        return Group(1, 1, 1, 1, present, "device", 1.0, 1.0)
    home = np.sort(rows // domain, axis=1)
    changes = (home[:, 1:] != home[:, :-1]).sum(axis=1)
    nodes = int(changes.max()) + 1
    widest = home[changes == nodes - 1]
    row, _, counts = _each_once(widest[:64])
    per_node = int(np.maximum.reduceat(counts, np.flatnonzero(np.diff(row, prepend=-1))).min())
    servers = rows // server
    where: Span = "node"
    below = [1.0, 1.0]
    if nodes > 1:
        level = 1
        for index, size in ((2, leaf), (3, pod)):
            block = servers // size
            crosses = block.max(axis=1) != block.min(axis=1)
            if crosses.any():
                level = index
            if pair:
                leaving = np.bincount(block[crosses, 0]).max() if crosses.any() else 0
                below[index - 2] = float(min(size * server, int(rows.max()) + 1) / max(1, leaving))
            else:
                home_block = widest[0] * domain // server // size
                below[index - 2] = float(np.unique(home_block, return_counts=True)[1].max() / per_node)
        where = _ORDER[level]
        if sharing is None:
            sharing = _sharing(rows // domain, pair)
    return Group(ranks, per_node, nodes, sharing or 1, present, where, max(1.0, below[0]), max(1.0, below[1]))


def _sharing(home: Int64s, pair: bool) -> int:
    """Groups that leave the busiest domain at the same time; of a pair only the sender counts."""
    crossing = home[(home.max(axis=1) != home.min(axis=1))]
    if pair:
        sources = crossing[:, 0]
        return int(np.unique(sources, return_counts=True)[1].max())
    touched = _each_once(crossing)[1] if len(crossing) <= 4096 else crossing[:, 0]
    return int(np.unique(touched, return_counts=True)[1].max())


def _each_once(rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Every different value (at least 0) of each of `rows`: the number of its row, the value, and how often it is there."""
    above = int(rows.max()) + 1
    codes, counts = np.unique(rows + np.arange(len(rows))[:, None] * above, return_counts=True)
    return codes // above, codes % above, counts.astype(np.int64)
