"""From a budget, a deadline or a loss to models, machines, days and dollars, with the rate that a prediction gives, not the peak.

For each machine: a first guess of the model from the law of the loss, a plan and a prediction for it, then the model again from the
FLOP/s that it reaches, until these settle. A loss target fixes the compute, so that one prediction is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError, WindtunnelError, unknown_machine
from windtunnel.base.files import without_gz
from windtunnel.predict.answer.money import DAY, RunPrice, run_price, tariff_of
from windtunnel.predict.answer.power import cluster_watts
from windtunnel.predict.prediction import Prediction
from windtunnel.search.budget.decoder import decoder
from windtunnel.search.budget.first_plan import best_plan
from windtunnel.search.budget.scaling import FLOPS_PER_PARAMETER, compute_for, loss, tokens_for
from windtunnel.search.budget.wish import Wish, check_wish
from windtunnel.spec import Cluster, Model, load_cluster, names
from windtunnel.spec.loading.files import SUFFIXES
from windtunnel.spec.loading.load import override
from windtunnel.spec.loading.resolve import merge
from windtunnel.workload import parameter_count

MACHINES = ("a100-ib", "h100-ib", "h200-ib", "b200-ib")
"""Clusters that are tried if the user names none."""

GUESS = 0.4
"""Share of the peak of the first guess of a machine's rate."""

MUCH = 1.5
"""Times the stated parameters from which a model is not of about this size."""

SETTLED = 0.02
MOST_GUESSES = 4
USUAL_DAYS = 30.0
"""Days for which a number of GPUs is chosen where there is no deadline."""

COUNTS = (64, 256, 1024)
"""GPUs that are tried where only a deadline is given, which says nothing about size."""

Plan = Callable[[Model, dict[str, Any], Sequence[str]], Prediction]


@dataclass(frozen=True)
class OfferedMachine:
    """A cluster with a number of GPUs, as a job's table names it."""

    cluster: Cluster
    table: dict[str, Any]

    @property
    def name(self) -> str:
        return self.cluster.id

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

    @property
    def flops(self) -> float:
        """Useful FLOP/s that the plan reaches, as the law counts them."""
        return FLOPS_PER_PARAMETER * self.parameters * self.prediction.tokens_per_s

    @property
    def good(self) -> bool:
        """Whether it meets every target and fits in memory."""
        return not self.misses and self.prediction.fits


@dataclass(frozen=True)
class Planned:
    """All alternatives, the best first, and why others are missing."""

    wish: Wish
    alternatives: tuple[Alternative, ...]
    left_out: tuple[str, ...] = ()


def plan(
    wish: Wish,
    machines: Sequence[str] = MACHINES,
    gpus: Sequence[int] = (),
    overrides: Sequence[str] = (),
    progress: Callable[[float], object] | None = None,
    planned: Plan = best_plan,
) -> Planned:
    """Alternatives for a wish on `machines` (clusters by name), with `gpus` of each, or numbers that suit the targets.

    `overrides` are those of a job. Raises SpecError for a wish that nothing can meet, with what it would take.
    """
    wish = check_wish(wish)
    tried = list(_machines(wish, machines, gpus, overrides))
    alternatives: list[Alternative] = []
    left_out: list[str] = []
    refused: WindtunnelError | None = None
    for number, machine in enumerate(tried):
        try:
            alternatives.append(_alternative(wish, machine, overrides, planned))
        except WindtunnelError as error:
            refused = refused or error
            left_out.append(f"{machine.cluster.gpus:,} GPUs of {machine.name}: {error}")
        if progress is not None:
            progress((number + 1) / len(tried))
    if not alternatives:
        raise refused or SpecError("--on", list(machines), "at least one cluster")
    return Planned(wish, tuple(sorted(alternatives, key=lambda one: _rank(wish, one))), tuple(left_out))


def _rank(wish: Wish, one: Alternative) -> tuple[float, ...]:
    """What meets the targets first; then dollars where the work is fixed, else the loss; then days."""
    cost = one.price.cost if one.price.cost is not None else float("inf")
    first = (cost, one.days) if wish.work_is_fixed else (round(one.loss, 4), cost)
    return (float(not one.good), float(not one.prediction.fits), float(len(one.misses)), *first, one.days)


def _machines(wish: Wish, machines: Sequence[str], gpus: Sequence[int], overrides: Sequence[str]) -> Iterator[OfferedMachine]:
    """Every cluster with every number of GPUs to try."""
    own: dict[str, Any] = {}
    for text in overrides:
        own = merge(own, override(text))
    changes = own.get("cluster", {})
    if not isinstance(changes, dict):
        raise SpecError("--set cluster", changes, "fields of a cluster; --on names clusters", f"Write --on {changes}.")
    tables = {name: merge(_table(name), changes) for name in dict.fromkeys(machines)}
    clusters = {name: load_cluster(table) for name, table in tables.items()}
    _check_budget(wish, list(clusters.values()))
    for name, cluster in clusters.items():
        for count in gpus or ([changes["gpus"]] if "gpus" in changes else _counts(wish, cluster)):
            table = merge(tables[name], {"gpus": count})
            yield OfferedMachine(load_cluster(table), table)


def _table(name: str) -> dict[str, Any]:
    """A cluster as a job's table has it: a name of the catalogue, or the fields of a file."""
    if without_gz(name).suffix.lower() in SUFFIXES:
        return load_cluster(Path(name)).model_dump(mode="json", exclude_none=True)
    if name not in names("clusters"):
        raise unknown_machine(name, names("clusters"))
    return {"base": name}


def _check_budget(wish: Wish, clusters: Sequence[Cluster]) -> None:
    """SpecError for a budget below an hour of the cheapest GPU, or where a cluster has no price."""
    if wish.budget is None:
        return
    hourly: dict[str, float] = {}
    for cluster in clusters:
        hour = tariff_of(cluster).dollars_per_hour
        if hour is None:
            raise SpecError(
                "--budget",
                wish.budget,
                f"clusters with a price: {cluster.id} states none",
                "Write --set cluster.price_per_gpu_hour=2.5.",
            )
        hourly[cluster.id] = sum(hour.values()) / cluster.gpus
    name, least = min(hourly.items(), key=lambda item: item[1])
    if wish.budget < least:
        raise SpecError("--budget", wish.budget, f"at least ${least:.2f}, an hour of one GPU of {name}")
    if wish.days is not None and wish.budget < least * 24.0 * wish.days:
        raise SpecError(
            "--budget",
            wish.budget,
            f"at least ${least * 24 * wish.days:,.0f}: one GPU of {name} for {wish.days:g} days",
            "Raise it, or write fewer --days.",
        )


def _counts(wish: Wish, cluster: Cluster) -> list[int]:
    """Numbers of GPUs that suit the targets: the one that spends budget or compute by the deadline, half and twice that."""
    days = wish.days or USUAL_DAYS
    most = cluster.gpus
    if wish.work_is_fixed:
        each = GUESS * OfferedMachine(cluster, {}).peak() * wish.goodput / cluster.gpus
        middle = _work(wish)[0] / (each * days * DAY)
    elif wish.budget is not None:
        hour = tariff_of(cluster).dollars_per_hour or {}
        middle = wish.budget / (sum(hour.values()) / cluster.gpus * 24.0 * days)
    else:
        return [count for count in COUNTS if count <= most] or [most]
    return sorted({_round(cluster, middle * factor, most) for factor in (0.5, 1.0, 2.0)})


def _round(cluster: Cluster, wanted: float, most: int) -> int:
    """The nearest power of two of nodes, or three times one, within the cluster."""
    node = cluster.node.gpus
    steps = [node * factor * 2**n for n in range(24) for factor in (1, 3) if node * factor * 2**n <= most] or [most]
    nearest: int = min(steps, key=lambda count: abs(count - wanted))
    return nearest


def _work(wish: Wish) -> tuple[float, float]:
    """FLOP and parameters of a wish that fixes the work."""
    if wish.loss is None:
        size, tokens = wish.parameters or 0.0, wish.tokens or 0.0
        return FLOPS_PER_PARAMETER * size * tokens, size
    compute = compute_for(wish.sizing, wish.loss)
    return compute, wish.sizing.of(compute)[0]


def _alternative(wish: Wish, machine: OfferedMachine, overrides: Sequence[str], planned: Plan) -> Alternative:
    if wish.work_is_fixed:
        return _for_work(wish, machine, overrides, planned)
    return _in_time(wish, machine, overrides, planned)


def _predict_plan(wish: Wish, machine: OfferedMachine, parameters: float, overrides: Sequence[str], planned: Plan) -> Prediction:
    """A plan and its prediction for a model of about `parameters`, or for the wish's own."""
    if wish.model is not None:
        model = wish.model
    else:
        own = tuple(text.removeprefix("model.") for text in overrides if text.startswith("model."))
        model = decoder(parameters, own)
        least = parameter_count(model)
        if wish.parameters is not None and least > MUCH * wish.parameters:
            raise SpecError(
                "--parameters", wish.parameters, f"at least {least:.3g}, the smallest that the rule of decoders builds",
                "A model of your own: --model FILE.",
            )  # fmt: skip
    rest = [text for text in overrides if not text.startswith(("cluster.", "cluster="))]
    return planned(model, machine.table, [f"cluster.gpus={machine.cluster.gpus}", *rest])


def _for_work(wish: Wish, machine: OfferedMachine, overrides: Sequence[str], planned: Plan) -> Alternative:
    """Days and dollars of work that the targets fix."""
    prediction = _predict_plan(wish, machine, _work(wish)[1], overrides, planned)
    size = parameter_count(prediction.job.model)
    tokens = tokens_for(wish.law, size, wish.loss) if wish.loss is not None else (wish.tokens or 0.0)
    days = _days(wish, prediction, tokens)
    price = _price(machine, prediction, days)
    misses = []
    if wish.days is not None and days > wish.days:
        misses.append(f"deadline by {days - wish.days:,.1f} days")
    if wish.budget is not None and price.cost is not None and price.cost > wish.budget:
        misses.append(f"budget by ${price.cost - wish.budget:,.0f}")
    limits = ("loss",) if wish.loss is not None else ("tokens",)
    return Alternative(machine, prediction, size, tokens, loss(wish.law, size, tokens), days, price, limits, tuple(misses))


def _in_time(wish: Wish, machine: OfferedMachine, overrides: Sequence[str], planned: Plan) -> Alternative:
    """The best model that the money and the days allow."""
    reached = GUESS * machine.peak() * wish.goodput
    for _ in range(MOST_GUESSES):
        seconds, _ = _seconds(wish, machine, None)
        prediction = _predict_plan(wish, machine, wish.sizing.of(reached * seconds)[0], overrides, planned)
        size = parameter_count(prediction.job.model)
        before, reached = reached, FLOPS_PER_PARAMETER * size * _rate(wish, prediction)
        if abs(reached / before - 1.0) < SETTLED:
            break
    seconds, limit = _seconds(wish, machine, prediction)
    tokens = min(_rate(wish, prediction) * seconds, wish.tokens or float("inf"))
    batch = float(prediction.job.plan.global_batch * prediction.job.plan.seq)
    if tokens < batch:
        raise SpecError(limit, wish.budget if limit == "budget" else wish.days, f"at least one step of {batch:,.0f} tokens")
    days = _days(wish, prediction, tokens)
    price = _price(machine, prediction, days)
    one = Alternative(
        machine, prediction, size, tokens, loss(wish.law, size, tokens), days, price, (limit,), _misses(wish, size, tokens)
    )
    return _with_naive(wish, one, seconds, overrides, planned)


NEAR = 0.8
"""Share of the stated tokens at which they count as met: sizes of models come in steps."""


def _misses(wish: Wish, size: float, tokens: float) -> tuple[str, ...]:
    """Stated data for which neither money nor days suffice, although the model is the smallest of the rule of decoders."""
    wanted = wish.tokens if wish.tokens is not None else (wish.tokens_per_parameter or 0.0) * size
    return (f"tokens by {wanted - tokens:,.3g}",) if tokens < NEAR * wanted else ()


def _with_naive(wish: Wish, one: Alternative, seconds: float, overrides: Sequence[str], planned: Plan) -> Alternative:
    """The alternative beside the model that the peak FLOP/s promise, and the days which that takes."""
    if wish.parameters is not None:
        return one
    parameters, tokens = wish.sizing.of(one.machine.peak(one.prediction.job.runtime.precision) * seconds)
    try:
        other = _predict_plan(wish, one.machine, parameters, overrides, planned)
    except WindtunnelError:
        return replace(one, naive=(parameters, tokens))
    return replace(one, naive=(parameters, tokens), naive_days=_days(wish, other, tokens))


def _seconds(wish: Wish, machine: OfferedMachine, prediction: Prediction | None) -> tuple[float, str]:
    """Seconds that the targets allow, and the one that stops first. Power that is paid apart counts once it is predicted."""
    allowed = []
    if wish.days is not None:
        allowed.append((wish.days * DAY, "deadline"))
    if wish.budget is not None:
        daily = machine.dollars_per_day or 0.0
        if prediction is not None:
            daily = _price(machine, prediction, 1.0).cost or daily
        allowed.append((wish.budget / daily * DAY, "budget"))
    return min(allowed)


def _rate(wish: Wish, prediction: Prediction) -> float:
    """Tokens a second of the whole run, with the time that failures and restarts take."""
    return prediction.tokens_per_s * wish.goodput


def _days(wish: Wish, prediction: Prediction, tokens: float) -> float:
    return tokens / _rate(wish, prediction) / DAY


def _price(machine: OfferedMachine, prediction: Prediction, days: float) -> RunPrice:
    watts = None if prediction.gpu_power_w is None else cluster_watts(machine.cluster, prediction.gpu_power_w)
    return run_price(tariff_of(machine.cluster), watts, days)
