"""Every rank of a job: where it sits, and how it differs from the others.

Random number streams of a job's seed: one per random decision, so that they are independent of each other.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError
from windtunnel.network.groups.shape import members
from windtunnel.spec import Cluster, Job
from windtunnel.spec.unequal import Unequal, Where
from windtunnel.workload import Axis


class Chance(IntEnum):
    """Random decisions. The numbers are part of the seeds: a new entry takes a new number."""

    SPEEDS = 1  # of single GPUs
    EVENTS = 2  # pauses of hosts, slow links
    JITTER = 3  # of one stage's kernels, and the load of experts
    DOCUMENTS = 4  # in the sequences of micro batches, which all stages see


def stream(seed: int, chance: Chance, *numbers: int) -> np.random.Generator:
    """The stream of one decision; `numbers`: indices within it, such as draw and stage."""
    return np.random.default_rng([seed, chance, *numbers])


def stream_of_entry(seed: int, field: str, at: int) -> np.random.Generator:
    """The stream of entry number `at` of a list of `unequal`."""
    return np.random.default_rng([seed, *f"unequal.{field}.{at}".encode()])


@dataclass(frozen=True)
class Places:
    """Server, replica and pipeline stage of each of W ranks [W]."""

    node: Int64s
    replica: Int64s
    stage: Int64s


@dataclass(frozen=True)
class Ranks:
    """Properties of each of W ranks [W]: `slow`: factor on all of its kernels; `product`: factor on matrix products and attention;
    `kind`: index of `clusters` (the job's cluster as ranks of that kind have it) and of `names` (labels of kinds)."""

    places: Places
    slow: Floats
    product: Floats
    kind: Int64s
    clusters: tuple[Cluster, ...]
    names: tuple[str, ...]

    def kind_names(self, kinds: int) -> str:
        """Names of all kinds whose bit is set."""
        return " and ".join(dict.fromkeys(name for k, name in enumerate(self.names) if kinds >> k & 1))


def places_of(job: Job) -> Places:
    """From the plan's sizes and its placement order, innermost axis first."""
    sizes = {"tp": job.plan.tp, "cp": job.plan.cp, "dp": job.dp, "pp": job.plan.pp}
    order = [axis for axis in reversed(job.plan.placement) if axis in sizes]
    ids = np.arange(int(np.prod(list(sizes.values()))))
    at = dict(zip(order, np.unravel_index(ids, [sizes[axis] for axis in order]), strict=True))
    return Places(ids // job.cluster.node.gpus, at["dp"].astype(np.int64), at["pp"].astype(np.int64))


def ranks_named(job: Job, places: Places, where: Where, field: str, number: int) -> Bools:
    """[W] whether `where`, an entry of `unequal`'s list `field`, names the rank. Raises PlanError if its fields have no rank in
    common."""
    hit = np.ones(len(places.node), np.bool_)
    if where.ranks:
        hit &= np.isin(np.arange(len(hit)), where.ranks)
    for ids, of in ((where.nodes, places.node), (where.replicas, places.replica), (where.stages, places.stage)):
        if ids:
            hit &= np.isin(of, ids)
    if where.share is not None:
        nodes = np.unique(places.node[hit])
        count = max(1, round(where.share * len(nodes))) if len(nodes) else 0
        hit &= np.isin(places.node, stream_of_entry(job.seed, field, number).choice(nodes, count, replace=False))
    if not hit.any():
        raise PlanError(f"unequal.{field}[{number}]", where.model_dump(exclude_defaults=True), "places that have a rank in common")
    return hit


def ranks_of(job: Job, unequal: Unequal, down: Bools) -> Ranks:
    """The ranks of a job with `unequal`; `down` [entries of links]: whether the link is slow in this step."""
    places = places_of(job)
    world = len(places.node)
    slow, product, kind = np.ones(world), np.ones(world), np.zeros(world, np.int64)
    if unequal.spread:
        slow = np.maximum(1.0 + unequal.spread * stream(job.seed, Chance.SPEEDS).standard_normal(world), 0.5)
    for at, entry in enumerate(unequal.slow):
        hit = ranks_named(job, places, entry, "slow", at)
        slow[hit] *= entry.factor
        product[hit] /= entry.clock
    clusters, names = [job.cluster], [job.cluster.gpu.name]
    for at, mixed in enumerate(unequal.mixed):
        hit = ranks_named(job, places, mixed, "mixed", at)
        node = mixed.node or job.cluster.node.model_copy(update={"gpu": mixed.gpu})
        if mixed.node is not None and np.isin(places.node[~hit], places.node[hit]).any():
            raise PlanError(
                f"unequal.mixed[{at}]", f"part of node {int(places.node[hit].min())}", "whole nodes, or gpu in place of node"
            )
        kind[hit] = len(clusters)
        clusters.append(job.cluster.model_copy(update={"node": node}))
        names.append(node.gpu.name)
    for at, link in enumerate(unequal.links):
        if down[at]:
            hit = ranks_named(job, places, link, "links", at)
            for old in np.unique(kind[hit]).tolist():
                kind[hit & (kind == old)] = len(clusters)
                clusters.append(_slower(clusters[old], link.rate))
                names.append(f"{names[old]} with NICs at {link.rate:.0%}")
    return Ranks(places, slow, product, kind, tuple(clusters), tuple(names))


def _slower(cluster: Cluster, rate: float) -> Cluster:
    """The cluster with NICs at the share `rate` of their rate."""
    nic = cluster.node.nic
    if nic is None:  # `spec.check` refuses slow links if no NIC is used
        return cluster
    slower = nic.model_copy(update={"bandwidth": nic.bandwidth * rate})
    return cluster.model_copy(update={"node": cluster.node.model_copy(update={"nic": slower})})


def joined_replicas(job: Job, places: Places, axis: Axis) -> Int64s:
    """[dp] for each replica the smallest one that it is connected with by groups of `axis`, directly or through others."""
    rows = np.unique(np.sort(places.replica[members(job, axis, 0)], axis=1), axis=0)
    return smallest_connected(rows[:, :-1].ravel(), rows[:, 1:].ravel(), job.dp)


def smallest_connected(one: Int64s, other: Int64s, count: int) -> Int64s:
    """[count] for each of `count` nodes the smallest node that it is connected with over edges from `one` to `other`."""
    from scipy.sparse import csr_array  # here: only unequal ranks need scipy, which is slow to import
    from scipy.sparse.csgraph import connected_components

    edges = csr_array((np.ones(len(one), np.int8), (one, other)), shape=(count, count))
    component = connected_components(edges, directed=False)[1]
    first = np.unique(component, return_index=True)[1]
    return np.asarray(first[component], np.int64)


def units_of(job: Job, places: Places) -> Int64s:
    """[dp] number of the unit of each replica: replicas that exchange tokens in every layer share a pace."""
    label = joined_replicas(job, places, Axis.EP) if job.plan.ep > 1 else np.arange(job.dp)
    if job.plan.etp > 1:
        label = np.minimum(label, label[joined_replicas(job, places, Axis.ETP)])
    return np.unique(label, return_inverse=True)[1].astype(np.int64)


def slow_nics(job: Job, unequal: Unequal, places: Places, down: Bools) -> list[tuple[Int64s, float]]:
    """(ranks, rate) of each link entry that is slow in this step."""
    return [
        (np.flatnonzero(ranks_named(job, places, link, "links", at)), link.rate)
        for at, link in enumerate(unequal.links)
        if down[at]
    ]
