"""What to change first: changes that could shorten the largest losses of a step, each priced by a prediction of its own.

A part of the breakdown states the cost of a loss, not the gain of a setting. So each lever of the one list (`registry.py`) is
predicted, and its gain is the difference of two predictions, per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.search.change import Change, predict_or_none
from windtunnel.search.facts import remember_facts
from windtunnel.search.levers.pricing import GAIN, price_levers
from windtunnel.search.levers.registry import LEVERS

WORTH = 0.02
"""Parts below this share of the step are ignored."""

LARGEST_PROGRAM = 400_000
"""Limit of passes of all stages up to which jobs are predicted again for advice; more would take seconds."""


@dataclass(frozen=True)
class Advice:
    """A loss, its cost, and the best change for it.

    `part` is the breakdown's key, or `slow_ranks` for ranks that the job says are slow; `cost_s` seconds of the step that it takes;
    `change` is None if no tried change gains. With the change: `step_time_s`, the share `gain` by which a token gets
    cheaper, and whether the job `fits`. `trains_otherwise`: the change affects training, such as the batch.
    """

    part: str
    cost_s: float
    change: Change | None = None
    step_time_s: float | None = None
    gain: float = 0.0
    fits: bool = True
    trains_otherwise: bool = False


@remember_facts()
def advise(prediction: Prediction, limit: int = 5) -> tuple[Advice, ...]:
    """The largest gains first, then losses without a helpful change; at most `limit`.

    All candidates are predicted in closed form, against the same job in closed form on a whole fabric; a step of more than
    LARGEST_PROGRAM passes is not predicted again. A change of the batch is advised only if nothing else gains.
    """
    job = prediction.job
    if job.plan.pp * job.plan.vpp * job.micro_batches > LARGEST_PROGRAM:
        return ()
    faulty = bool(job.cluster.fabric.faults)
    whole = job
    if faulty:
        from windtunnel.network.simulate.fabric_faults import without_faults  # here: it imports the packet engine

        whole = job.model_copy(update={"cluster": without_faults(job.cluster)})
    base = predict(whole) if prediction.network != "closed" else prediction
    losses = {part: seconds for part, seconds in base.breakdown.items() if seconds >= WORTH * base.step_time_s}
    best: dict[str, Advice] = {part: Advice(part, seconds) for part, seconds in losses.items() if part in FOR_PARTS}
    for one in price_levers(base):
        if one.gain <= GAIN or not one.fits and base.fits or one.part not in losses and not one.helps:
            continue
        known = best.get(one.part)
        if known is not None and known.change is not None and (one.trains_otherwise or one.gain <= known.gain):
            continue
        best[one.part] = Advice(
            one.part, base.breakdown[one.part], one.change, one.step_time_s, one.gain, one.fits, one.trains_otherwise
        )
    by_change: dict[Change | str, Advice] = {}
    others = sorted(best.values(), key=lambda one: (one.trains_otherwise, -one.gain, -one.cost_s))
    for advice in (*_culprits(base), *others):
        by_change.setdefault(advice.change or advice.part, advice)
    return tuple(by_change.values())[:limit]


FOR_PARTS = frozenset(part for lever in LEVERS for part in lever.parts) - {"matmul", "attention", "memory_bound"}
"""Losses that a lever is for; the other parts of a step are its computation."""


def _price_change(base: Prediction, change: Change) -> tuple[float, float, bool] | None:
    """Step time with the change, the share by which a token gets cheaper, whether it fits; None if the job is invalid."""
    other = predict_or_none(base.job, change)
    if other is None:
        return None
    return other.step_time_s, 1.0 - base.tokens_per_s / other.tokens_per_s, other.fits


def _culprits(base: Prediction) -> Iterator[Advice]:
    """Cost of the ranks that the job states as slow, by a prediction without them."""
    if base.job.unequal is None:
        return
    priced = _price_change(base, Change.of(unequal=None))
    if priced is not None and priced[1] >= WORTH:
        yield Advice("slow_ranks", base.step_time_s - priced[0], Change.of(unequal=None), priced[0], priced[1], priced[2])
