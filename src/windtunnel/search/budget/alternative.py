"""One answer to a wish: a model trained on some tokens in some days on a number of GPUs of a machine, and what it misses.

What it takes to buy a machine instead of renting it: its capital, and the months after which rent would have cost as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windtunnel.predict.answer.money import HOUR, KWH, YEAR_HOURS, RunPrice, tariff_of
from windtunnel.predict.answer.power import cluster_watts
from windtunnel.predict.prediction import Prediction
from windtunnel.search.budget.scaling import FLOPS_PER_PARAMETER
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


ASSUMED_SHARE = 0.5
"""Share of the seconds of kernels that rest on assumed figures from which all count as assumed."""


@dataclass(frozen=True)
class OfferedMachine:
    """A cluster with a number of GPUs, as a job's table names it."""

    cluster: Cluster
    table: dict[str, Any]

    @property
    def name(self) -> str:
        return self.cluster.id

    @property
    def price_is_assumed(self) -> bool:
        """Whether its rent is one that the catalogue assumes: its `source` says so, and nobody stated another."""
        cluster = self.cluster
        words = cluster.source.partition("price")[2].partition(";")[0]
        return cluster.economics.mode == "rent" and "assumed" in words and "price_per_gpu_hour" not in self.table

    @property
    def dollars_per_gpu_hour(self) -> float | None:
        """What an hour of a GPU costs, without power that is paid apart."""
        day = self.dollars_per_day
        return None if day is None else day / 24.0 / self.cluster.gpus

    @property
    def dollars_per_day(self) -> float | None:
        """Rent or capital of a day, without power that is paid apart."""
        hour = tariff_of(self.cluster).dollars_per_hour
        return None if hour is None else 24.0 * sum(hour.values())

    def peak(self, precision: str = "bf16") -> float:
        """FLOP/s of all GPUs."""
        peaks: dict[str, float] = dict(self.cluster.gpu.peak)
        return self.cluster.gpus * peaks.get(precision, max(peaks.values()))


@dataclass(frozen=True)
class Alternative:
    """One answer: a model trained on `tokens` in `days` on a machine with a plan.

    `limits` names the targets that stopped it, `misses` those that it does not meet. `naive`: what the law gives with the peak
    FLOP/s instead, in the same time; None where the targets fix the work.
    """

    machine: OfferedMachine
    prediction: Prediction
    parameters: float
    tokens: float
    loss: float
    days: float
    price: RunPrice
    limits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    naive: tuple[float, float] | None = None
    naive_days: float | None = None
    beyond: Mapping[str, float] = field(default_factory=dict)
    """Dollars over the `budget`, days after the `deadline`, tokens that lack."""
    ettr: float = 1.0
    """Share of the days that trains: what the wish says, or what the job's reliability leaves."""
    ownership: Ownership | None = None
    """Capital and break-even of a machine that is bought."""
    assumed: tuple[str, ...] = ()
    """Which of `price` and `kernels` rest on assumptions: of the catalogue, or most of the step."""

    @property
    def flops(self) -> float:
        """Useful FLOP/s that the plan reaches, as the law counts them."""
        return FLOPS_PER_PARAMETER * self.parameters * self.prediction.tokens_per_s

    @property
    def good(self) -> bool:
        """Whether it meets every target and fits in memory."""
        return not self.misses and self.prediction.fits


def assumptions_of(machine: OfferedMachine, prediction: Prediction) -> tuple[str, ...]:
    """What of an alternative rests on assumptions: `price`, `kernels`."""
    assumed = sum(row.seconds_total for row in prediction.kernels if row.provenance == "assumed")
    kernels = assumed >= ASSUMED_SHARE * sum(row.seconds_total for row in prediction.kernels) > 0.0
    return (*(("price",) if machine.price_is_assumed else ()), *(("kernels",) if kernels else ()))
