"""From a budget, a deadline or a loss to models, machines, days and dollars, with the rate that a prediction gives, not the peak.

For each machine: a first guess of the model from the law of the loss, a plan and a prediction for it, then the model again from the
FLOP/s that it reaches, until these settle. A loss target fixes the compute, so that one prediction is enough.

A decoder of about a given number of parameters, by one rule.

The rule follows the Llama 3 family (arXiv 2407.21783, Table 3): SwiGLU of 3.5 times the width, heads of 128, 8 key-value heads, a
vocabulary of 128,256, and a width of about 128 times the number of layers. Width goes in steps of 1,024 (of 256 below 2,048), so
that heads divide by tensor parallelism; layers come from the parameters that are left.

The plan of a candidate machine and model: the best of a small space around the first one that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError, SpecError, WindtunnelError, unknown_machine
from windtunnel.base.files import without_gz
from windtunnel.goodput import run_of
from windtunnel.predict import predict
from windtunnel.predict.answer.money import DAY, RunPrice, run_price, tariff_of
from windtunnel.predict.answer.power import cluster_watts
from windtunnel.predict.prediction import Prediction
from windtunnel.search.api import search
from windtunnel.search.budget.counts import CountSearch, rank
from windtunnel.search.budget.wish import (
    FLOPS_PER_PARAMETER,
    Alternative,
    OfferedMachine,
    Wish,
    assumptions_of,
    check_wish,
    compute_for,
    loss,
    ownership_of,
    tokens_for,
)
from windtunnel.search.defaults import default_fields
from windtunnel.search.find import SearchLimits
from windtunnel.search.margin import usual_margin
from windtunnel.search.space import Values
from windtunnel.search.start import start
from windtunnel.spec import Cluster, Job, Model, load_cluster, names
from windtunnel.spec.loading.degrees import stated_in
from windtunnel.spec.loading.files import SUFFIXES
from windtunnel.spec.loading.load import load_model, override
from windtunnel.spec.loading.resolve import merge
from windtunnel.workload import active_parameters, parameter_count

GAP = 0.02
"""Share by which another plan of the space may be better: a planner compares machines, whose rates differ by more."""

NARROWER: dict[str, Values] = {
    "plan.pp": (1, 2, 4, 8, 16),
    "plan.vpp": (1, 2, 4),
    "plan.sharding": ("zero1", "fsdp"),
    "plan.micro_batch": (1, 2),
    "plan.recompute": ("none", "full"),
    "plan.cp": (1,),
}
"""Values of the default space that are kept, so that many candidates take seconds."""


def best_plan(model: Model, cluster: str | dict[str, Any], overrides: Sequence[str] = ()) -> Prediction:
    """The prediction of a good plan for a model on a cluster, whose `cluster.gpus` and other fields the overrides may state.

    If no plan of the space fits, that of the first plan that was tried. Raises the PlanError or SpecError of the first candidate
    if no plan is a valid job.
    """
    job, fixed = _first_job(model, cluster, overrides)
    fields = {path: values for path, values in default_fields(job).items() if path not in fixed}
    for path, kept in NARROWER.items():
        if path in fields:
            fields[path] = tuple(value for value in fields[path] if value in kept) or fields[path]
    return _best_of(job, fields, GAP)


def thorough_plan(model: Model, cluster: str | dict[str, Any], overrides: Sequence[str] = ()) -> Prediction:
    """As `best_plan`, but the best plan of the whole default space, which takes seconds."""
    job, fixed = _first_job(model, cluster, overrides)
    return _best_of(job, {path: values for path, values in default_fields(job).items() if path not in fixed}, 0.0)


def _first_job(model: Model, cluster: str | dict[str, Any], overrides: Sequence[str]) -> tuple[Job, frozenset[str]]:
    """The job of the first plan, and the paths that the overrides state."""
    stated: dict[str, Any] = {}
    for text in overrides:
        stated = merge(stated, override(text))
    table = {
        "name": model.name,
        "model": model.model_dump(mode="json", exclude_none=True),
        "runtime": {"framework": "megatron-core"},
        "cluster": cluster,
    }
    fixed = stated_in(stated)
    return start(table, model, overrides, fixed).job, fixed


def _best_of(job: Job, fields: dict[str, Values], gap: float) -> Prediction:
    try:
        result = search(
            job, fields, margin=usual_margin(), limits=SearchLimits(gap=gap), processes=1, explained=False, levers=False
        )
    except (PlanError, SpecError):
        return predict(job)
    return predict(result.job_of(result.ranked[0]))


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
    thorough: Plan = thorough_plan,
) -> Planned:
    """Alternatives for a wish on `machines` (clusters by name), with `gpus` of each, or numbers that suit the targets.

    `planned` finds the plan of a number of GPUs; `thorough`, which takes longer, looks again where that narrowly misses the targets
    and nothing meets them. `overrides` are those of a job. Raises SpecError for a wish that nothing can
    meet, with what it would take.
    """
    wish = check_wish(wish)
    _check_reliability(wish, overrides)
    tables = _tables(wish, machines, overrides)
    alternatives: list[Alternative] = []
    errors: dict[str, WindtunnelError] = {}
    for number, table in enumerate(tables.values()):
        done = 0

        def tick(number: int = number) -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress((number + 1.0 - 1.0 / (1.0 + 0.2 * done)) / len(tables))

        alternatives += _rows_of(wish, table, gpus, overrides, (planned, thorough), errors, tick)
    if not alternatives:
        raise next(iter(errors.values()), SpecError("--on", list(machines), "at least one cluster"))
    if progress is not None:
        progress(1.0)
    left_out = tuple(f"{where}: {error}" for where, error in errors.items()) if gpus else ()
    return Planned(wish, tuple(sorted(alternatives, key=lambda one: rank(wish, one))), left_out)


def _tables(wish: Wish, machines: Sequence[str], overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The table of every cluster with what the overrides change of it."""
    own: dict[str, Any] = {}
    for text in overrides:
        own = merge(own, override(text))
    changes = own.get("cluster", {})
    if not isinstance(changes, dict):
        raise SpecError("--set cluster", changes, "fields of a cluster; --on names clusters", f"Write --on {changes}.")
    tables = {name: merge(_table(name), changes) for name in dict.fromkeys(machines)}
    _check_budget(wish, [load_cluster(table) for table in tables.values()])
    return tables


def _rows_of(
    wish: Wish,
    table: dict[str, Any],
    gpus: Sequence[int],
    overrides: Sequence[str],
    planned: tuple[Plan, Plan],
    left_out: dict[str, WindtunnelError],
    progress: Callable[[], object],
) -> list[Alternative]:
    """Alternatives on one cluster: with the stated numbers of GPUs, or those that the targets ask for."""
    cluster = load_cluster(table)

    def evaluate(count: int, again: bool = False) -> Alternative:
        progress()
        placed = merge(table, {"gpus": count})
        return _alternative(wish, OfferedMachine(load_cluster(placed), placed), overrides, planned[again])

    stated = list(gpus) or ([table["gpus"]] if "gpus" in table and "base" in table else [])
    search = CountSearch(wish, cluster.gpus, cluster.node.gpus, evaluate)
    if stated:
        rows = search.run_stated(stated)
    elif wish.work_is_fixed or wish.budget is not None:
        rows = search.run(_guess(wish, cluster))
    else:
        rows = search.run_beside([float(count) for count in COUNTS])
    left_out.update({f"{count:,} GPUs of {cluster.id}": error for count, error in search.errors.items()})
    return rows


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


def _guess(wish: Wish, cluster: Cluster) -> float:
    """A first number of GPUs: the one that spends the budget, or does the work, by the deadline."""
    days = wish.days or USUAL_DAYS
    if wish.work_is_fixed:
        flops, size = _work(wish)
        used = active_parameters(wish.model) / size if wish.model is not None else 1.0  # a token of a mixture uses some experts
        each = GUESS * OfferedMachine(cluster, {}).peak() * wish.goodput / cluster.gpus
        return flops * used / (each * days * DAY)
    if wish.budget is None:
        return float(COUNTS[1])
    hour = tariff_of(cluster).dollars_per_hour or {}
    return wish.budget / (sum(hour.values()) / cluster.gpus * 24.0 * days)


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
    misses, beyond = [], {}
    if wish.days is not None and days > wish.days:
        beyond["deadline"] = days - wish.days
        misses.append(f"deadline by {beyond['deadline']:,.1f} days")
    if wish.budget is not None and price.cost is not None and price.cost > wish.budget:
        beyond["budget"] = price.cost - wish.budget
        misses.append(f"budget by ${beyond['budget']:,.0f}")
    limits = ("loss",) if wish.loss is not None else ("tokens",)
    found = loss(wish.law, size, tokens)
    one = Alternative(machine, prediction, size, tokens, found, days, price, limits, tuple(misses), beyond=beyond)
    return _with_grounds(wish, one)


def _with_grounds(wish: Wish, one: Alternative) -> Alternative:
    """The alternative with what it rests on: the share of days that trains, capital, assumptions."""
    prediction, cluster = one.prediction, one.machine.cluster
    return replace(
        one,
        ettr=_share(wish, prediction),
        ownership=ownership_of(cluster, prediction.gpu_power_w),
        assumed=assumptions_of(one.machine, prediction),
    )


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
    lacking = _lacking_tokens(wish, size, tokens)
    misses = (f"tokens by {lacking:,.3g}",) if lacking else ()
    found = loss(wish.law, size, tokens)
    beyond = {"tokens": lacking} if lacking else {}
    one = Alternative(machine, prediction, size, tokens, found, days, price, (limit,), misses, beyond=beyond)
    return _with_naive(wish, _with_grounds(wish, one), seconds, overrides, planned)


NEAR = 0.8
"""Share of the stated tokens at which they count as met: sizes of models come in steps."""


def _lacking_tokens(wish: Wish, size: float, tokens: float) -> float:
    """Stated data for which neither money nor days suffice, although the model is the smallest of the rule of decoders."""
    wanted = wish.tokens if wish.tokens is not None else (wish.tokens_per_parameter or 0.0) * size
    return wanted - tokens if tokens < NEAR * wanted else 0.0


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
    return prediction.tokens_per_s * _share(wish, prediction)


def _share(wish: Wish, prediction: Prediction) -> float:
    """Share of the days in which steps are made that count: the wish's, or what the failures of the job's reliability leave."""
    job = prediction.job
    if job.reliability is None:
        return wish.goodput
    share = run_of(job, prediction.step_time_s).goodput
    if share <= 0.0:
        raise PlanError("reliability", job.reliability.id, "failures so rare that a run on so many GPUs ends", "Try fewer --gpus.")
    return share


def _check_reliability(wish: Wish, overrides: Sequence[str]) -> None:
    """SpecError where two options say which share of the days trains, or a field of the job says what an option of `plan` does."""
    if wish.goodput != 1.0 and any(text.strip().startswith("reliability") for text in overrides):
        raise SpecError("--goodput", wish.goodput, "left out with --set reliability=…, from whose failures it follows")
    for text in overrides:
        if text.partition("=")[0].strip() == "tokens":
            raise SpecError("--set", text, "fields of a job that matter here", f"Write --tokens {text.partition('=')[2]}.")


def _days(wish: Wish, prediction: Prediction, tokens: float) -> float:
    return tokens / _rate(wish, prediction) / DAY


def _price(machine: OfferedMachine, prediction: Prediction, days: float) -> RunPrice:
    watts = None if prediction.gpu_power_w is None else cluster_watts(machine.cluster, prediction.gpu_power_w)
    return run_price(tariff_of(machine.cluster), watts, days)


HEAD = 128
ASPECT = 128
VOCAB = 128_256
MAX_SEQ = 8192
WIDTHS = (256, 512, 768, 1024, 1280, 1536, 1792, *range(2048, 65_537, 1024))
MOST_LAYERS = 512


def decoder(parameters: float, overrides: tuple[str, ...] = ()) -> Model:
    """The model of the rule nearest to `parameters`; overrides change its fields, such as `vocab=50304`.

    SpecError for more parameters than the rule covers. Fewer than its smallest model give that.
    """
    models = [model for width in WIDTHS if (model := _of_width(width, parameters, overrides)) is not None]
    if not models or parameters > 1.2 * (largest := max(map(parameter_count, models))):
        most = largest if models else parameter_count(_build_decoder(WIDTHS[-1], MOST_LAYERS, overrides))
        raise SpecError("parameters", f"{parameters:.3g}", f"at most {most:.3g}, the largest that the rule of decoders builds")
    return min(models, key=lambda model: _distance_from_rule(model, parameters))


def _distance_from_rule(model: Model, parameters: float) -> float:
    """How far a model is from the number of parameters and from the aspect of the rule."""
    missing = abs(parameter_count(model) / parameters - 1.0)
    shape = model.hidden / model.layers / ASPECT
    return missing + 0.1 * abs(max(shape, 1.0 / shape) - 1.0)


def _of_width(width: int, parameters: float, overrides: tuple[str, ...]) -> Model | None:
    """The model of a width; None if its shape is more than three times off the rule's aspect."""
    empty, one = (parameter_count(_build_decoder(width, layers, overrides)) for layers in (1, 2))
    each = one - empty
    layers = max(2, round((parameters - (empty - each)) / each))
    if layers > 8:
        layers = max(8, 4 * round(layers / 4))  # pipelines of 2 and 4 stages divide it
    smallest = width == WIDTHS[0]
    if layers > MOST_LAYERS or not smallest and not ASPECT / 3 <= width / layers <= ASPECT * 3:
        return None
    return _build_decoder(width, layers, overrides)


def _build_decoder(width: int, layers: int, overrides: tuple[str, ...]) -> Model:
    heads = width // HEAD
    table = {
        "name": f"decoder-{width}x{layers}",
        "layers": layers,
        "hidden": width,
        "heads": heads,
        "kv_heads": min(8, heads) if heads % min(8, heads) == 0 else 2,
        "ffn": width * 7 // 2,
        "vocab": VOCAB,
        "max_seq": MAX_SEQ,
        "activation": "swiglu",
        "norm": "rmsnorm",
        "position": "rope",
        "tied_embeddings": width < 2048,
        "linear_bias": False,
    }
    return load_model(table, overrides)
