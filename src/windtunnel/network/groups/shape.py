"""The shape of a communication group: its ranks, and how they are spread over nodes, leaves and pods.

A rank's place follows from the plan's placement order (innermost axis first) and from the size of the node. All groups of an axis
are compared, and the shape returned is that of the group that spans most nodes, since groups wait for the slowest one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.fabrics.drawn import check_room, levels_of
from windtunnel.network.groups.grid_shape import flat_grid_group, grid_group, shape_on_grid
from windtunnel.network.groups.group import Group as Group
from windtunnel.network.groups.group import Span
from windtunnel.network.groups.ranks import EXPERTS, rows_of
from windtunnel.spec.machine.cluster import Cluster
from windtunnel.workload.ops import Axis

if TYPE_CHECKING:
    from windtunnel.spec.job import Job

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
        cluster.node.domain,
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
    domain = cluster.node.domain
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
    return _describe(rows, None, node.domain, node.gpus, levels.leaf_nodes, levels.pod_nodes, pair)


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
