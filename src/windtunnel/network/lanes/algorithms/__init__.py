"""Collective algorithms as lanes, one file each: the sends between ranks, and the waits of each send."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.network.lanes.algorithms.alltoall import all_to_all
from windtunnel.network.lanes.algorithms.bruck import bruck
from windtunnel.network.lanes.algorithms.collnet import collnet_chain, collnet_direct
from windtunnel.network.lanes.algorithms.direct import direct
from windtunnel.network.lanes.algorithms.halving import halving_doubling
from windtunnel.network.lanes.algorithms.hierarchical import hierarchical
from windtunnel.network.lanes.algorithms.nvls import nvls, nvls_tree
from windtunnel.network.lanes.algorithms.pat import pat
from windtunnel.network.lanes.algorithms.pattern import CollectiveCall, Pattern
from windtunnel.network.lanes.algorithms.ring import ring
from windtunnel.network.lanes.algorithms.tree import tree

LOWERINGS: dict[str, Callable[[CollectiveCall], Pattern]] = {
    "ring": ring,
    "tree": tree,
    "collnet_direct": collnet_direct,
    "collnet_chain": collnet_chain,
    "nvls": nvls,
    "nvls_tree": nvls_tree,
    "pat": pat,
    "p2p": all_to_all,
    "direct": direct,
    "halving_doubling": halving_doubling,
    "hierarchical": hierarchical,
    "bruck": bruck,
}
"""Algorithms that NCCL's tuner selects (names as in `nccl/constants.py`), then those of other libraries."""

OTHERS = ("direct", "halving_doubling", "hierarchical", "bruck")
"""Algorithms that NCCL does not have; they run only if named."""

__all__ = ["LOWERINGS", "OTHERS", "CollectiveCall", "Pattern"]
