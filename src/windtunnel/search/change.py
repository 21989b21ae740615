"""A change of a job: fields with new values, as `--set` types them, and the job with them.

A plan in a line: `tp 4, pp 8, recompute selective`.

The numbers of a closed-form prediction by which changed jobs are compared, predicted once for each job of a search.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.memory import StageMemory, memory_of
from windtunnel.predict.answer.read import StepNumbers
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.step import predict_built
from windtunnel.spec import Job, Noun, check, dump_job, load_job
from windtunnel.workload import Workload, build


class Stepped(Protocol):
    """What a prediction and its facts have in common."""

    @property
    def job(self) -> Job:
        """The job."""

    @property
    def step_time_s(self) -> float:
        """Seconds of a step."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all GPUs."""

    @property
    def breakdown(self) -> Mapping[str, float]:
        """Seconds of the step by part."""

    @property
    def fits(self) -> bool:
        """Whether it fits into memory."""


@dataclass(frozen=True)
class StepFacts:
    """Numbers of a prediction. Bytes: `spare` ones are free on the fullest stage (negative: missing), `fullest` the most that a GPU
    holds. Seconds, US dollars, joules; `breakdown` as in a prediction."""

    job: Job
    step_time_s: float
    tokens_per_s: float
    mfu: float
    breakdown: Mapping[str, float]
    fits: bool
    spare: float
    fullest: float
    cost_per_step: float | None
    energy_j_per_step: float | None

    @classmethod
    def of(cls, found: Prediction | StepNumbers) -> StepFacts:
        """The facts of a prediction."""
        return cls(
            found.job,
            found.step_time_s,
            found.tokens_per_s,
            found.mfu,
            found.breakdown,
            found.fits,
            -max(stage.missing for stage in found.memory),
            max(stage.total for stage in found.memory),
            found.cost_per_step,
            found.energy_j_per_step,
        )


MOST = 256
"""Facts that are remembered at most; the oldest go first."""

_KNOWN: ContextVar[dict[Job, StepFacts] | None] = ContextVar("_KNOWN", default=None)


@contextmanager
def remember_facts() -> Iterator[None]:
    """Inside, `facts_of` predicts each job once. Nothing is kept afterwards."""
    if _KNOWN.get() is not None:
        yield
        return
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def facts_of(job: Job, workload: Workload | None = None) -> StepFacts:
    """The closed-form facts of a job; `workload`, where it is built already. Raises as `predict`."""
    known = _KNOWN.get()
    if known is not None and job in known:
        return known[job]
    found = StepFacts.of(predict_built(build(check(job)) if workload is None else workload))
    if known is not None:
        known[job] = found
        if len(known) > MOST:
            del known[next(iter(known))]
    return found


AnyNoun = TypeVar("AnyNoun", bound=Noun)


@dataclass(frozen=True)
class Change:
    """New values by dotted path, such as `plan.tp`; None leaves an optional field out."""

    fields: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, **fields: Any) -> Change:
        """From keywords, `__` for the dot: `Change.of(plan__tp=4)`."""
        return cls(tuple((path.replace("__", "."), value) for path, value in fields.items()))

    def __add__(self, other: Change) -> Change:
        return Change((*self.fields, *other.fields))

    @property
    def sets(self) -> tuple[str, ...]:
        """Arguments of `--set`; a dp that follows from other degrees is left out, since it is adjusted automatically."""
        return tuple(f"{path}={format_value(value)}" for path, value in self.fields if not _follows(path, value))

    def without_no_ops(self, job: Job) -> Change:
        """The change without fields that already have their new value."""
        return Change(tuple((path, value) for path, value in self.fields if value_of(job, path) != value))

    def apply(self, job: Job) -> Job:
        """The job with the new values; PlanError or SpecError if they contradict it."""
        return check(self.apply_unchecked(job))

    def apply_unchecked(self, job: Job) -> Job:
        """The job with the new values, whatever they are."""
        tree: dict[str, Any] = {}
        for path, value in self.fields:
            *heads, last = path.split(".")
            level = tree
            for head in heads:
                level = level.setdefault(head, {})
            level[last] = value
        return _update_noun(job, tree)


def _follows(path: str, value: object) -> bool:
    """Whether a value comes with another one: a dp with other degrees, costs of the host with a way to launch."""
    return path == "plan.dp" and value is None or isinstance(value, Noun)


def _update_noun(noun: AnyNoun, tree: Mapping[str, Any]) -> AnyNoun:
    """A copy of `noun` with the nested values of `tree`."""
    inner = {key: _update_noun(getattr(noun, key), value) if isinstance(value, Mapping) else value for key, value in tree.items()}
    return noun.model_copy(update=inner)


def value_of(job: Job, path: str) -> Any:
    """The value at a dotted path."""
    value: Any = job
    for name in path.split("."):
        value = getattr(value, name)
    return value


def parse_values(job: Job, path: str, texts: Sequence[str]) -> tuple[Any, ...]:
    """Values as the job's field at `path` has them, from what `--set` takes. SpecError for one that it cannot have."""
    dumped = dump_job(job)
    return tuple(value_of(load_job(tomllib.loads(dumped), [f"{path}={text}"]), path) for text in texts)


def format_value(value: object) -> str:
    """A value as `--set` takes it."""
    if value is None:
        return "none"
    if isinstance(value, (tuple, list)):
        return f"[{','.join(format_value(item) for item in value)}]"
    return plain_text(value)


def plain_text(value: object) -> str:
    """A value as TOML has it: switches in small letters, lists of words with their quotes."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def apply_or_none(job: Job, change: Change) -> Job | None:
    """The job with the change, or None if it contradicts itself."""
    try:
        return change.apply(job)
    except WindtunnelError:
        return None


def predict_or_none(job: Job, change: Change) -> StepFacts | None:
    """The closed-form facts of the job with the change, or None if it cannot be predicted."""
    after = apply_or_none(job, change)
    try:
        return None if after is None else facts_of(after)
    except WindtunnelError:
        return None


def spare_bytes(memory: Sequence[StageMemory]) -> float:
    """Free bytes on the fullest stage; negative: missing bytes."""
    return -max(stage.missing for stage in memory)


def memory_after(job: Job) -> tuple[StageMemory, ...] | None:
    """The memory of every stage, or None if the graph cannot be built."""
    try:
        return memory_of(job, build(job))
    except WindtunnelError:
        return None


def value_text(value: Any) -> str:
    """A value, with runs of equal numbers folded: `[4 x 15, 1]`; words joined as Megatron joins axes: `tp-cp-ep-dp-pp`."""
    if isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
        return "-".join(value)  # brackets around words would be markup
    if isinstance(value, tuple) and len(value) > 4 and all(isinstance(part, int) for part in value):
        runs: list[list[int]] = []
        for part in value:
            if runs and runs[-1][0] == part:
                runs[-1][1] += 1
            else:
                runs.append([part, 1])
        return "[" + ", ".join(f"{part} x {times}" if times > 1 else str(part) for part, times in runs) + "]"
    return format_value(value)


def plan_words(fields: Mapping[str, Any], than: Mapping[str, Any] | None = None) -> str:
    """`tp 4, pp 8, …`; with `than`, only what differs from it."""
    words = []
    for path, value in fields.items():
        if than is not None and than.get(path, value) == value and path in than:
            continue
        name = short_name(path)
        if path == "plan.stages" and value is None:
            words.append("stages of equally many layers")
        elif value is None or isinstance(value, bool):
            words.append(name if value else f"no {name}")
        else:
            words.append(f"{name} {value_text(value)}")
    return ", ".join(words)


def short_name(path: str) -> str:
    """`micro batch` of `plan.micro_batch`."""
    return path.removeprefix("plan.").removeprefix("runtime.").replace("_", " ")
