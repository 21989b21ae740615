"""Spaces too large to list, such as the hardware of a cluster: optuna's samplers choose designs, each is judged by its best plan.

A design is a value for each axis. Its plan is the winner of the exact search among the plans of that machine, cut after a number
of predictions, or with `fixed_plan` the job's own plan. There is no certificate: a sampler has seen only what it tried. Trials live
in optuna's storage, so that a study goes on after a stop.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError, WindtunnelError
from windtunnel.predict.answer.silicon import Silicon, silicon_of
from windtunnel.search.change import Change, parse_values, value_of
from windtunnel.search.find import Candidate, Search, SearchLimits, plans_of
from windtunnel.search.objective import Objective, front_first, objectives
from windtunnel.search.outcome import outcome_of
from windtunnel.search.space import Space, split_values
from windtunnel.search.workers import Here
from windtunnel.spec import Job, dump_job

PREDICTIONS = 24
"""Predictions for the best plan of one design."""

PRICE = "cluster.price_per_gpu_hour"
LEAST_PRICE = 0.01
"""US dollars: premiums below the base never make a GPU free."""


@dataclass(frozen=True)
class DesignField:
    """A field of the design: a range from `low` to `high` in `unit`, as `--set` writes it, or a choice among `values`.

    `scale`: SI value of one `unit`; `whole`: only whole numbers. Numbers of other ranges have four digits."""

    path: str
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    scale: float = 1.0
    whole: bool = False

    def suggest(self, trial: Any) -> str:
        """The value that the sampler proposes, as `--set` takes it."""
        if self.values:
            return str(trial.suggest_categorical(self.path, self.values))
        if self.whole:
            return f"{trial.suggest_int(self.path, int(self.low), int(self.high))}{self.unit}"
        return f"{trial.suggest_float(self.path, self.low, self.high):.4g}{self.unit}"


_END = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)(.*?)\s*$")


def field_of(base: Job, path: str, text: str) -> DesignField:
    """The axis of `path=LOW..HIGH` or `path=A,B,C` for a job; SpecError for a wrong unit, an unknown field or an empty range."""
    said = f"{path}={text}"
    if ".." not in text:
        values = tuple(split_values(path, text))
        parse_values(base, path, values)
        return DesignField(path, values)
    ends = [_END.match(end) for end in text.split("..", 1)]
    if ends[0] is None or ends[1] is None:
        raise SpecError("--set", said, "two numbers with a unit, such as cluster.node.gpu.memory_bandwidth=2TB/s..8TB/s")
    (low, unit), (high, high_unit) = (float(ends[0][1]), ends[0][2]), (float(ends[1][1]), ends[1][2])
    if unit not in ("", high_unit):
        raise SpecError("--set", said, "both ends in the same unit", f"Write them in {high_unit or 'plain numbers'}.")
    if low >= high:
        raise SpecError("--set", said, "a range from a lower to an upper value", f"Type: {path}={high:g}..{low:g}{high_unit}.")
    first, last = parse_values(base, path, [f"{end:.12g}{high_unit}" for end in (low, high)])
    if not isinstance(first, (int, float)) or isinstance(first, bool):
        raise SpecError("--set", said, "a range only of a field that is a number")
    return DesignField(path, (), low, high, high_unit, last / high, isinstance(first, int))


@dataclass(frozen=True)
class Premium:
    """A price of hardware: `dollars` a GPU and hour for each unit of the axis beyond the base job's value."""

    axis: DesignField
    dollars: float

    def of(self, base: Job, job: Job) -> float:
        more = float(value_of(job, self.axis.path)) - float(value_of(base, self.axis.path))
        return self.dollars * more / self.axis.scale


@dataclass(frozen=True)
class Design:
    """A tried design: its values by path, its job, the best plan, and its value for each objective (less is better)."""

    number: int
    fields: Mapping[str, str]
    job: Job
    plan: Candidate
    values: tuple[float, ...]

    @property
    def silicon(self) -> Silicon | None:
        """Dies, memory and package of its GPU; None where they are not known."""
        return silicon_of(self.job.cluster.node)


@dataclass(frozen=True)
class DesignResult:
    """`designs` of all of the study's trials, best first; with several objectives the undominated ones, `front` of them, first.

    `failed`: trials without a plan, by reason. `importance`: a field's share in what sets designs apart that are good in the first
    objective (PED-ANOVA, Watanabe et al. 2023)."""

    axes: tuple[DesignField, ...]
    objectives: tuple[Objective, ...]
    designs: tuple[Design, ...]
    front: int
    trials: int
    failed: Mapping[str, int]
    importance: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; units are SI."""
        return {
            "objectives": [each.name for each in self.objectives],
            "trials": self.trials,
            "failed": dict(self.failed),
            "importance": dict(self.importance),
            "front": self.front,
            "designs": [self._design(one) for one in self.designs],
        }

    def _design(self, one: Design) -> dict[str, Any]:
        return {
            "trial": one.number,
            "fields": dict(one.fields),
            "set": list(one.plan.change.without_no_ops(one.job).sets),
            "values": {each.name: each.shown(value) for each, value in zip(self.objectives, one.values, strict=True)},
            "step_time_s": one.plan.outcome.step_time_s,
            "memory": one.plan.outcome.memory,
            "silicon": None if one.silicon is None else one.silicon.as_dict(),
        }


def design(
    space_of: Callable[[Sequence[str]], Space],
    axes: Sequence[DesignField],
    objective: str = "time",
    *,
    trials: int = 100,
    seed: int = 0,
    study: str | None = None,
    premiums: Sequence[Premium] = (),
    fixed_plan: bool = False,
    predictions: int = PREDICTIONS,
    stop: Callable[[float], bool] | None = None,
) -> DesignResult:
    """Tries designs until the study has `trials` of them; `space_of` makes the plans of a machine from arguments of `--set`.

    `study`: optuna's storage, such as sqlite:///design.db; a study goes on where it was. With several objectives the plan of a
    design is the best in the first one. Raises SpecError without optuna, for a study of something else, and if no design has a
    plan.
    """
    if not axes:
        raise SpecError("--set", "no range", "a field to vary, such as cluster.node.gpu.memory_bandwidth=2TB/s..8TB/s")
    chosen = objectives(objective)
    base = space_of([])
    for each in chosen:
        if PRICE not in [axis.path for axis in axes] and (why := each.needs(base.job)):
            raise SpecError("--objective", each.name, "an objective whose inputs the job states", why)
    if premiums and base.job.cluster.price_per_gpu_hour is None:
        raise SpecError("--premium", "no base price", "a price of the cluster", f"Type: --set {PRICE}=2.5.")
    optuna = _optuna()
    asked = [dump_job(base.job), repr(base.fields), repr(axes), objective, fixed_plan, predictions, repr(premiums)]
    opened = _study(optuna, study, seed, len(chosen), hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16])
    judge = _Judge(space_of, chosen, premiums, fixed_plan, predictions)
    designs: list[Design] = []
    failed: Counter[str] = Counter()
    earlier = [trial for trial in opened.get_trials(deepcopy=False) if trial.state.is_finished()]
    for trial in earlier:
        _keep(judge, trial.number, trial.user_attrs, designs, failed)
    done = len(earlier)
    while done < trials and not (stop is not None and stop(done / trials)):
        trial = opened.ask()
        fields = {axis.path: axis.suggest(trial) for axis in axes}
        trial.set_user_attr("fields", fields)
        one = judge.best(fields, trial.number)
        if isinstance(one, str):
            trial.set_user_attr("refused", one)
            opened.tell(trial, state=optuna.trial.TrialState.FAIL)
            failed[one] += 1
        else:
            trial.set_user_attr("plan", [list(pair) for pair in one.plan.change.fields])
            opened.tell(trial, list(one.values))
            designs.append(one)
        done += 1
    if not designs:
        why = failed.most_common(1)[0][0] if failed else "No trial was made."
        raise SpecError("--set", f"{done} designs", "at least one with a plan that fits", why)
    return _result(optuna, opened, axes, chosen, designs, failed, done)


class _Judge:
    """The best plan of a design."""

    def __init__(
        self,
        space_of: Callable[[Sequence[str]], Space],
        chosen: Sequence[Objective],
        premiums: Sequence[Premium],
        fixed_plan: bool,
        predictions: int,
    ) -> None:
        self.space_of, self.chosen, self.premiums = space_of, tuple(chosen), tuple(premiums)
        self.fixed_plan, self.predictions = fixed_plan, predictions
        self.base = space_of([]).job

    def space(self, fields: Mapping[str, str]) -> Space:
        """The plans of a design's machine, at its price."""
        space = self.space_of([f"{path}={value}" for path, value in fields.items()])
        if not self.premiums:
            return space
        price = (space.job.cluster.price_per_gpu_hour or 0.0) + sum(one.of(self.base, space.job) for one in self.premiums)
        return Space(Change(((PRICE, max(price, LEAST_PRICE)),)).apply_unchecked(space.job), space.fields)

    def best(self, fields: Mapping[str, str], number: int) -> Design | str:
        """The design with its best plan, or why it has none."""
        try:
            space = self.space(fields)
            if self.fixed_plan:
                return self.predict_again(fields, number, Change(()), space)
            plans = plans_of([space], self.chosen[:1])
            ranked, _ = Search(plans, self.chosen[:1], Here(plans.jobs, 0.0)).run(limits=SearchLimits(predictions=self.predictions))
        except WindtunnelError as error:
            return str(error).split("\n")[0]
        return self.predict_again(fields, number, ranked[0].change, space) if ranked else "no plan fits the memory"

    def predict_again(self, fields: Mapping[str, str], number: int, change: Change, space: Space) -> Design | str:
        """The design with a known plan, predicted."""
        outcome = outcome_of(space.job, change)
        if not outcome.fits:
            return outcome.refused or "no plan fits the memory"
        plan = dict(change.fields)
        tokens = int(plan.get("plan.global_batch", space.job.plan.global_batch)) * space.job.plan.seq
        values = tuple(each.value(space.job, outcome, tokens) for each in self.chosen)
        return Design(number, dict(fields), space.job, Candidate(0, change, outcome, values), values)


def _keep(judge: _Judge, number: int, kept: Mapping[str, Any], designs: list[Design], failed: Counter[str]) -> None:
    """A trial of an earlier call: its plan is predicted once more, so that a study holds no numbers of an older version."""
    if "plan" not in kept:
        failed[str(kept.get("refused", "stopped in the middle"))] += 1
        return
    change = Change(tuple((path, tuple(value) if isinstance(value, list) else value) for path, value in kept["plan"]))
    one = judge.predict_again(kept["fields"], number, change, judge.space(kept["fields"]))
    if isinstance(one, Design):
        designs.append(one)
    else:
        failed[one] += 1


def _optuna() -> Any:
    try:
        optuna: Any = import_module("optuna")
    except ImportError:
        raise SpecError("design", "optuna", "optuna, which is not installed", "Type: pip install 'windtunnel[search]'.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _study(optuna: Any, storage: str | None, seed: int, count: int, asked: str) -> Any:
    """The study in `storage` (None: in memory); SpecError if it is one of another space."""
    if storage is not None and "://" not in storage:
        raise SpecError("--study", storage, "an address of optuna's storage", "For example: --study sqlite:///design.db.")
    try:
        directions = ["minimize"] * count
        opened = optuna.create_study(storage=storage, study_name="windtunnel", directions=directions, load_if_exists=True)
    except Exception as error:  # SQLAlchemy's errors are many, and its classes are not ours to import
        raise FileError("--study", str(storage), "a storage that optuna can open", f"{str(error).splitlines()[0]}") from None
    before = opened.user_attrs.get("asked")
    if before not in (None, asked) or len(opened.directions) != count:
        raise SpecError(
            "--study", storage, "a study of the same job, fields and objectives", "Name another file, or repeat its command."
        )
    opened.set_user_attr("asked", asked)
    done = len(opened.get_trials(deepcopy=False))  # a sampler that begins anew must not repeat itself
    opened.sampler = optuna.samplers.TPESampler(seed=seed + done)
    return opened


def _result(
    optuna: Any,
    opened: Any,
    axes: Sequence[DesignField],
    chosen: tuple[Objective, ...],
    designs: Sequence[Design],
    failed: Mapping[str, int],
    done: int,
) -> DesignResult:
    ranked, front = front_first(sorted(designs, key=lambda one: (one.values, one.number)), lambda one: one.values)
    importance: dict[str, float] = {}
    if len(designs) >= 2 * len(axes) + 8 and len(axes) > 1:  # fewer say nothing
        importance = _importance(optuna, opened)
    return DesignResult(tuple(axes), chosen, tuple(ranked), front, done, dict(failed), importance)


def _importance(optuna: Any, opened: Any) -> dict[str, float]:
    """Shares by path, largest first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is experimental, and that low values count as good, which is what we want
        judge = optuna.importance.PedAnovaImportanceEvaluator()
        return dict(optuna.importance.get_param_importances(opened, evaluator=judge, target=lambda trial: trial.values[0]))
