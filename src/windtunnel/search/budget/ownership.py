"""What it takes to buy a machine instead of renting it: its capital, and the months after which rent would have cost as much."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.predict.answer.money import HOUR, KWH, YEAR_HOURS, tariff_of
from windtunnel.predict.answer.power import cluster_watts
from windtunnel.spec import Cluster

CAPITAL = ("nodes", "network", "storage")
"""Parts of a tariff that are capital."""


@dataclass(frozen=True)
class Ownership:
    """`capital`: US dollars that nodes, network and storage cost on the first day; `years` over which a run's price spreads them;
    `months` of use, as much as the cluster's economics say, after which the rent of its GPUs would have cost as much, without what
    the machine sells for then; None where rent is never dearer, or unknown."""

    capital: float
    years: float
    months: float | None


def ownership_of(cluster: Cluster, gpu_watts: float | None) -> Ownership | None:
    """The ownership of a bought cluster whose GPUs draw `gpu_watts`; None for a rented one."""
    economics = cluster.economics
    if economics.mode != "buy":
        return None
    tariff = tariff_of(cluster)
    parts = dict(tariff.dollars_per_hour or {})
    used = YEAR_HOURS * economics.utilisation  # hours of a year
    wear = (1.0 - economics.residual) / (economics.life_years * used)
    if wear <= 0.0:
        return None
    capital = sum(parts.get(name, 0.0) for name in CAPITAL) / wear
    running = sum(dollars for name, dollars in parts.items() if name not in CAPITAL)
    if gpu_watts is not None:
        running += cluster_watts(cluster, gpu_watts).total * HOUR / KWH * tariff.dollars_per_kwh
    rent = cluster.price_per_gpu_hour
    saved = 0.0 if rent is None else rent * cluster.gpus - running
    return Ownership(capital, economics.life_years, capital / saved / (used / 12.0) if saved > 0.0 else None)
