"""Levers with their prices: what each change of the list gains on a job, by a prediction of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from windtunnel.base.errors import WindtunnelError
from windtunnel.search.change import Change, apply_or_none, predict_or_none
from windtunnel.search.facts import Stepped, facts_of
from windtunnel.search.levers.conditions import can_do
from windtunnel.search.levers.flags import flags_of
from windtunnel.search.levers.registry import LEVERS, TRAINING, ListedLever
from windtunnel.spec import Job

GAIN = 0.003
"""Gains below this share of the step are not shown: predictions cannot distinguish less."""


LOSS = 5e-4
"""Share of the step below which a loss is not worth the levers that are for it."""


@dataclass(frozen=True)
class PricedLever:
    """A change of `lever` with the prediction's step, the share `gain` by which a token gets cheaper, whether it `fits` and the
    flags of its framework. `part`: the loss of the breakdown that it shortens most. `trains_otherwise`: it changes what is
    trained."""

    lever: str
    change: Change
    step_time_s: float
    gain: float
    fits: bool
    part: str
    flags: tuple[str, ...]
    trains_otherwise: bool

    @property
    def helps(self) -> bool:
        """Whether it gains enough to be told apart, fits, trains the same, and is the job's to choose, not the machine's."""
        machine = any(path.startswith(("cluster.", "unequal")) for path, _ in self.change.fields)
        return self.gain > GAIN and self.fits and not self.trains_otherwise and not machine


def list_offers(job: Job, levers: tuple[ListedLever, ...] = LEVERS) -> Iterator[tuple[ListedLever, Change]]:
    """Every change of the list that is one for `job` and that its framework can do, each once."""
    seen: set[Change] = set()
    for lever in levers:
        for candidate in lever.changes(job):
            change = candidate.without_no_ops(job)
            if not change.fields or change in seen:
                continue
            seen.add(change)
            after = apply_or_none(job, change)
            if after is not None and can_do(after, change):
                yield lever, change


def price_levers(base: Stepped, least: float = LOSS, progress: Callable[[], object] = lambda: None) -> tuple[PricedLever, ...]:
    """All levers of a closed-form prediction's job, the largest gain first; those that train otherwise last.

    A lever is not predicted where the losses that it is for are below the share `least` of the step. A lever of a job that fits has
    to leave it fitting to come before one that does not.
    """
    losses = {part: seconds for part, seconds in base.breakdown.items() if seconds >= least * base.step_time_s}
    priced = []
    for lever, change in list_offers(base.job, tuple(one for one in LEVERS if not one.parts or losses.keys() & set(one.parts))):
        progress()
        other = predict_or_none(base.job, change)
        if other is not None:
            priced.append(_price(base, lever, change, other))
    return tuple(sorted(priced, key=lambda one: (one.trains_otherwise, base.fits and not one.fits, -one.gain)))


def _price(base: Stepped, lever: ListedLever, change: Change, other: Stepped) -> PricedLever:
    parts = [part for part in lever.parts if part in base.breakdown]
    if not parts:
        parts = sorted(base.breakdown)
    saved = {part: base.breakdown[part] - other.breakdown.get(part, 0.0) for part in parts}
    part = max(parts, key=lambda one: saved[one])
    trains = any(path in TRAINING for path, _ in change.fields)
    gain = 1.0 - base.tokens_per_s / other.tokens_per_s
    return PricedLever(lever.name, change, other.step_time_s, gain, other.fits, part, flags_of(other.job, change.fields), trains)


def first_lever_or_none(job: Job) -> PricedLever | None:
    """As `first_lever`; also None for a job that cannot be predicted."""
    try:
        return first_lever(job)
    except WindtunnelError:
        return None


def first_lever(job: Job) -> PricedLever | None:
    """What to change first: the lever that gains most; None if none does."""
    return next((one for one in price_levers(facts_of(job)) if one.helps), None)
