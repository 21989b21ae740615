"""Waiting for the slowest: what differences between equal GPUs cost when ranks wait for each other."""

from __future__ import annotations

from statistics import NormalDist

from windtunnel.spec import Cluster


def expected_maximum(ranks: int) -> float:
    """Expected largest of `ranks` standard normal draws, in sigmas; Blom 1958: the quantile at (n - 0.375) / (n + 0.25)."""
    if ranks < 2:
        return 0.0
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def slowdown(cluster: Cluster) -> float:
    """Expected factor on compute time of a step that ends with the slowest of the cluster's GPUs.

    Good GPUs are normal with `gpu_spread`; each node is slow with probability `slow_nodes`, and one slow node sets the pace.
    """
    nodes = -(-cluster.gpus // cluster.node.gpus)
    good = 1.0 + cluster.gpu_spread * expected_maximum(cluster.gpus)
    any_slow = 1.0 - (1.0 - cluster.slow_nodes) ** nodes
    return (1.0 - any_slow) * good + any_slow * max(good, cluster.slow_node_factor)
