"""Jobs on one fabric: the nodes of each, and whether the fabric has room for all of them.

A job's ranks fill nodes one after the other, so that a node's GPUs stay together, as schedulers hand them out. `nodes:` and `list:`
name nodes and are served first; the words of `PLACEMENTS` choose among the nodes that are left, in the order of the jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network.fabrics.cluster import PLACEMENTS, place
from windtunnel.spec.machine import Cluster

FIELD = "cluster.placement"
_WORDS = ("packed", "leaf", "pod", "random")
_HINT = "Write nodes:0-3,8, list:GPU,GPU,... or one of " + ", ".join(_WORDS) + "; without it a job takes the first free nodes."


@dataclass(frozen=True)
class Tenant:
    """A job's part of a fabric: its name, and the machine that it states."""

    name: str
    cluster: Cluster

    @property
    def needs(self) -> int:
        """Nodes that the job fills."""
        return -(-self.cluster.gpus // self.cluster.node.gpus)


@dataclass(frozen=True)
class Tenancy:
    """A fabric of `nodes` nodes; `gpus[j]` [ranks] is the GPU of each rank of job j, numbered node by node."""

    nodes: int
    gpus: tuple[Int32s, ...]


def settle(tenants: Sequence[Tenant]) -> Tenancy:
    """Where each job runs.

    SpecError at `cluster.fabric.nodes` for a fabric that is too small, at `cluster.placement` for nodes that another job has, that
    do not exist, or that tear the GPUs of a node apart.
    """
    node = tenants[0].cluster.node
    named = {at: gpus for at, one in enumerate(tenants) if (gpus := _named_gpus(one)) is not None}
    needs = sum(one.needs for one in tenants)
    highest = max((int(gpus.max()) // node.gpus + 1 for gpus in named.values()), default=0)
    stated = tenants[0].cluster.fabric.nodes
    nodes = stated if stated is not None else max(_least_nodes(tenants), highest)
    _check_size(tenants, nodes, needs)
    owner = np.full(nodes, -1, np.int64)
    for at, gpus in named.items():
        if int(gpus.max()) >= nodes * node.gpus:
            text = tenants[at].cluster.placement
            raise SpecError(FIELD, text, f"nodes from 0 to {nodes - 1}", "Write a larger cluster.fabric.nodes for a larger fabric.")
        _check_whole(tenants[at], gpus)
        taken = np.unique(gpus // node.gpus)
        _check_free(tenants, at, taken, owner)
        owner[taken] = at
    placed = []
    for at, one in enumerate(tenants):
        if at in named:
            placed.append(named[at])
            continue
        chosen = _choose(one, owner)
        owner[chosen] = at
        placed.append(_fill(chosen, one))
    return Tenancy(nodes, tuple(placed))


def _least_nodes(tenants: Sequence[Tenant]) -> int:
    """Nodes with room for all jobs: of several jobs, whole scale-up domains for each."""
    if len(tenants) == 1:
        return tenants[0].needs
    cluster = tenants[0].cluster
    together = max(1, cluster.domain // cluster.node.gpus)
    return sum(-(-one.needs // together) * together for one in tenants)


def _check_size(tenants: Sequence[Tenant], nodes: int, needs: int) -> None:
    if nodes >= needs:
        return
    each = ", ".join(f"{one.name} fills {one.needs}" for one in tenants)
    hint = f"Write --set cluster.fabric.nodes={needs}, or fewer GPUs."
    raise SpecError("cluster.fabric.nodes", nodes, f"at least {needs} nodes: {each}", hint)


def _check_free(tenants: Sequence[Tenant], at: int, wanted: Int32s, owner: Int64s) -> None:
    held = wanted[owner[wanted] >= 0]
    if not len(held):
        return
    other = tenants[int(owner[held[0]])]
    listed = ", ".join(map(str, held[:8].tolist())) + (f" and {len(held) - 8} more" if len(held) > 8 else "")
    free = np.setdiff1d(np.flatnonzero(owner < 0), wanted)
    raise SpecError(
        FIELD,
        tenants[at].cluster.placement,
        f"nodes that no other job has: {tenants[at].name} and {other.name} both take node{'s' if len(held) > 1 else ''} {listed}",
        f"Leave out the placement of {tenants[at].name}, which then takes free nodes"
        + (f", such as {node_ranges(free[: tenants[at].needs])}." if len(free) >= tenants[at].needs else "."),
    )


def _check_whole(tenant: Tenant, gpus: Int32s) -> None:
    """Raises SpecError if ranks of one scale-up domain would run in several."""
    domain = tenant.cluster.domain
    for first in range(0, len(gpus), domain):
        if len(np.unique(gpus[first : first + domain] // domain)) > 1:
            raise SpecError(
                FIELD,
                tenant.cluster.placement,
                f"ranks {first} to {min(first + domain, len(gpus)) - 1} in one scale-up domain of {domain} GPUs",
                "Groups of a plan are laid out for whole domains: name the GPUs of a domain one after the other.",
            )


def _fill(nodes: Int32s, tenant: Tenant) -> Int32s:
    """The GPUs of a job that fills these nodes in their order."""
    per_node = tenant.cluster.node.gpus
    return (nodes[:, None] * per_node + np.arange(per_node)).ravel()[: tenant.cluster.gpus].astype(np.int32)


def _named_gpus(tenant: Tenant) -> Int32s | None:
    """GPUs of a placement that names them, None for one that chooses."""
    text = tenant.cluster.placement
    word, _, rest = (text or "").partition(":")
    if word == "nodes":
        named = _node_list(text or "", rest)
        if len(named) != tenant.needs:
            allowed = f"{tenant.needs} nodes for the {tenant.cluster.gpus} GPUs of {tenant.name}, not {len(named)}"
            raise SpecError(FIELD, text, allowed)
        return _fill(np.array(named, np.int32), tenant)
    if word != "list":
        return None
    home: Int32s = np.broadcast_to(np.int32(0), 2**24)  # more GPUs than any fabric has
    gpus = place(text or "", home, home, home, home)
    if len(gpus) != tenant.cluster.gpus:
        raise SpecError(FIELD, f"{len(gpus)} GPUs", f"a GPU for each of the {tenant.cluster.gpus} ranks of {tenant.name}")
    return gpus


def _node_list(text: str, rest: str) -> list[int]:
    """`0-3,8` as numbers; SpecError for what is no list of different nodes."""
    nodes: list[int] = []
    try:
        for part in rest.split(","):
            first, _, last = part.partition("-")
            low, high = int(first), int(last or first)
            if low < 0 or high < low or high > 2**20:
                raise ValueError
            nodes += range(low, high + 1)
    except ValueError:
        raise SpecError(FIELD, text, "numbers and ranges of nodes, such as nodes:0-3,8") from None
    if len(set(nodes)) != len(nodes):
        raise SpecError(FIELD, text, "different nodes, such as nodes:0-3,8")
    return nodes


def _choose(tenant: Tenant, owner: Int64s) -> Int32s:
    """Free nodes for a job, in the order of its placement; those of a scale-up domain together."""
    text = tenant.cluster.placement or "packed"
    word = text.partition(":")[0]
    if word not in _WORDS:
        if word in PLACEMENTS:
            raise SpecError(FIELD, text, "a placement that keeps the GPUs of a node together", _HINT)
        raise UnknownName(FIELD, word, [*_WORDS, "nodes", "list"])
    fabric, node = tenant.cluster.fabric, tenant.cluster.node
    numbers = np.arange(len(owner), dtype=np.int32)
    try:
        order = place(text, numbers, numbers // fabric.leaf_nodes, numbers // fabric.pod_nodes, np.zeros_like(numbers))
    except SpecError as error:
        raise SpecError(FIELD, text, error.allowed) from None
    order = order[owner[order] < 0]
    together = max(1, tenant.cluster.domain // node.gpus)
    room: dict[int, list[int]] = {}
    for one in order.tolist():
        room.setdefault(one // together, []).append(one)
    chosen: list[int] = []
    while len(chosen) < tenant.needs:
        want = min(together, tenant.needs - len(chosen))
        unit = next((unit for unit, free in room.items() if len(free) >= want), None)
        if unit is None:
            raise SpecError(
                "cluster.fabric.nodes",
                len(owner),
                f"room for {tenant.name}, which fills {tenant.needs} nodes: {len(order)} are free, "
                f"and none of the domains of {together} nodes has {want} of them",
                "Write more cluster.fabric.nodes.",
            )
        chosen += sorted(room.pop(unit))[:want]
    return np.array(chosen, np.int32)


def node_ranges(nodes: Int32s) -> str:
    """`nodes:0-3,8` for the numbers [n], in their order."""
    parts: list[list[int]] = []
    for node in nodes.tolist():
        if parts and node == parts[-1][1] + 1:
            parts[-1][1] = node
        else:
            parts.append([node, node])
    return "nodes:" + ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
