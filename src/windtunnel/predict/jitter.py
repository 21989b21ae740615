"""Waiting for the slowest: what a spread in speed costs when ranks wait for each other."""

from __future__ import annotations

from statistics import NormalDist


def expected_maximum(ranks: int) -> float:
    """Expected largest of `ranks` standard normal draws, in sigmas (Blom 1958: quantile at (n - 0.375) / (n + 0.25)); 0 for one rank."""
    if ranks < 2:
        return 0.0
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def slowdown(sigma: float, ranks: int) -> float:
    """Factor on compute time when a step ends with its slowest of `ranks` GPUs, each with relative spread `sigma`."""
    return 1.0 + sigma * expected_maximum(ranks)
