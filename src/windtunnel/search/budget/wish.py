"""What a planner asks for from the other end: money, days or a loss, and what is fixed of the model and its data.

Sizes of models and numbers of tokens for an amount of compute, by a law of the loss.

Compute is C = 6 N D FLOP for N parameters and D tokens, as in Hoffmann et al. 2022 (arXiv 2203.15556). The best split of C has N =
G (C/6)^(beta/(alpha+beta)) with G = (alpha A / (beta B))^(1/(alpha+beta)); its equation 4.

One answer to a wish: a model trained on some tokens in some days on a number of GPUs of a machine, and what it misses.

What it takes to buy a machine instead of renting it: its capital, and the months after which rent would have cost as much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError
from windtunnel.predict.answer.money import HOUR, KWH, YEAR_HOURS, RunPrice, tariff_of
from windtunnel.predict.answer.power import cluster_watts
from windtunnel.predict.prediction import Prediction
from windtunnel.spec import Cluster, Model
from windtunnel.spec.scaling import LossLaw

FLOPS_PER_PARAMETER = 6.0
"""FLOP a token and parameter: 2 forward, 4 backward."""

LEAST, MOST = 1e12, 1e34
"""FLOP between which a target is looked for."""


@dataclass(frozen=True)
class Sizing:
    """How compute is divided: by the law alone, or with one of `parameters`, `tokens`, `tokens_per_parameter` given."""

    law: LossLaw
    parameters: float | None = None
    tokens: float | None = None
    tokens_per_parameter: float | None = None

    def of(self, compute: float) -> tuple[float, float]:
        """(parameters, tokens) for `compute` FLOP."""
        product = compute / FLOPS_PER_PARAMETER
        if self.parameters is not None:
            return self.parameters, product / self.parameters
        if self.tokens is not None:
            return product / self.tokens, self.tokens
        if self.tokens_per_parameter is not None:
            size = (product / self.tokens_per_parameter) ** 0.5
            return size, product / size
        law = self.law
        scale = (law.alpha * law.A / (law.beta * law.B)) ** (1.0 / (law.alpha + law.beta))
        size = scale * product ** (law.beta / (law.alpha + law.beta))
        return size, product / size


def loss(law: LossLaw, parameters: float, tokens: float) -> float:
    """Nats a token of a model of `parameters` after `tokens`."""
    return float(law.E + law.A / parameters**law.alpha + law.B / tokens**law.beta)


def tokens_for(law: LossLaw, parameters: float, target: float) -> float:
    """Tokens after which a model reaches a loss; SpecError if no number of tokens is enough."""
    left = target - law.E - law.A / parameters**law.alpha
    if left <= 0.0:
        raise SpecError(
            "--loss",
            target,
            f"above {law.E + law.A / parameters**law.alpha:.4f}: what a model of {parameters / 1e9:.3g} billion parameters nears "
            f"with ever more tokens, by law {law.id}",
        )
    return float((law.B / left) ** (1.0 / law.beta))


def compute_for(sizing: Sizing, target: float) -> float:
    """FLOP with which a loss is reached, by bisection; SpecError if none is enough."""
    law = sizing.law
    if target <= law.E:
        raise SpecError("--loss", target, f"above {law.E:g}, which no model of any size falls below by law {law.id}")
    if sizing.parameters is not None:
        return FLOPS_PER_PARAMETER * sizing.parameters * tokens_for(law, sizing.parameters, target)
    low, high = LEAST, MOST
    if loss(law, *sizing.of(high)) > target:
        raise SpecError("--loss", target, f"a loss that {MOST:.0e} FLOP reach: {loss(law, *sizing.of(high)):.4f} by law {law.id}")
    if loss(law, *sizing.of(low)) <= target:
        raise SpecError("--loss", target, f"below {loss(law, *sizing.of(low)):.3g}, which {LEAST:.0e} FLOP reach already")
    while high / low > 1.0 + 1e-9:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if loss(law, *sizing.of(middle)) > target else (low, middle)
    return high


LONGEST = 3653.0
"""Days; a longer deadline is a slip."""


@dataclass(frozen=True)
class Wish:
    """`budget` in US dollars, `days` until the deadline, `loss` in nats a token: any of them. `model` or `parameters` fixes the
    model, `tokens` the data, `tokens_per_parameter` their ratio; left open, the law divides compute best. `goodput` is the share of
    the days in which steps are made that count."""

    law: LossLaw
    budget: float | None = None
    days: float | None = None
    loss: float | None = None
    model: Model | None = field(default=None, compare=False)
    parameters: float | None = None
    tokens: float | None = None
    tokens_per_parameter: float | None = None
    goodput: float = 1.0

    @property
    def work_is_fixed(self) -> bool:
        """Whether the targets say how much is trained, so that money and days follow."""
        return self.loss is not None or self.parameters is not None and self.tokens is not None

    @property
    def sizing(self) -> Sizing:
        """How compute is divided under the wish."""
        return Sizing(self.law, self.parameters, None if self.parameters else self.tokens, self.tokens_per_parameter)


def check_wish(wish: Wish) -> Wish:
    """The wish, or SpecError at the first target that is no number, is missing, or contradicts another."""
    for name in ("budget", "days", "loss", "parameters", "tokens", "tokens_per_parameter"):
        value = getattr(wish, name)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise SpecError(f"--{name.replace('_', '-')}", value, "a number above 0")
    if not 0.0 < wish.goodput <= 1.0:
        raise SpecError("--goodput", wish.goodput, "above 0, at most 1")
    if wish.days is not None and wish.days > LONGEST:
        raise SpecError("--days", wish.days, f"at most {LONGEST:g}, ten years")
    fixed = [name for name in ("parameters", "tokens", "tokens_per_parameter") if getattr(wish, name) is not None]
    if len(fixed) > 2 or "tokens_per_parameter" in fixed and len(fixed) > 1:
        raise SpecError("--tokens-per-parameter", wish.tokens_per_parameter, "without --tokens, --model or --parameters")
    if wish.loss is not None and len(fixed) == 2:
        raise SpecError(
            "--loss", wish.loss, "left out where both model and tokens are given: they decide it", "Leave out --tokens or --loss."
        )
    if wish.budget is None and wish.days is None and not wish.work_is_fixed:
        raise SpecError(
            "plan", "no target", "at least one of --budget, --days, --loss", "For example: windtunnel plan --budget 2M --days 30."
        )
    return wish


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
