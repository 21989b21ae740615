"""Stated errors of published step times: the record by kind of run, and how many rows lie inside what is stated for them.

`catalog/accuracy.toml` holds the record (`page/record.py` writes it), and predictions take their stated error from it. The share
of rows inside is INSIDE for every kind by construction, so it shows no foresight. `held_out` does: the errors of a family are
stated by the record of all other families.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, pstdev, quantiles

from windtunnel.base.dataclasses import dataclass
from windtunnel.predict.published import FEWEST, PublishedSteps, RunKind, Trained, by_kind, like, stated_error, widening
from windtunnel.predict.rests import added_error, causes_of
from windtunnel.reality.score.scores import Score


@dataclass(frozen=True)
class StatedErrors:
    """Step times of a kind of run on any GPU.

    `inside_pct` of the rows lie inside the stated error, `held_out_pct` inside what all other families state. `said`: each report
    of such a run says to which side it leans.
    """

    trained: Trained
    precision: str
    framework: str
    rows: int
    inside_pct: float
    held_out_pct: float
    bias_pct: float
    said: bool


def published_steps(scores: Iterable[Score]) -> tuple[PublishedSteps, ...]:
    """A line for each kind of run with FEWEST rows, and for each wider kind that reports fall back to."""
    groups: dict[RunKind, list[Score]] = defaultdict(list)
    for score in _with_step_times(scores):
        for kind in _kinds_of(_kind(score)):
            groups[kind].append(score)
    wide = sorted((kind for kind, some in groups.items() if len(some) >= FEWEST), key=lambda kind: tuple(vars(kind).values()))
    return tuple(_line(kind, groups[kind]) for kind in wide)


def stated_errors(scores: Iterable[Score]) -> tuple[StatedErrors, ...]:
    """A line for each of dense, experts or adapters × precision × framework, from the record that `scores` make."""
    timed = list(_with_step_times(scores))
    record = by_kind(published_steps(timed))
    inside = _lie_inside(timed, dict.fromkeys((score.family for score in timed), record))
    families = {score.family for score in timed}
    others = {name: by_kind(published_steps(score for score in timed if score.family != name)) for name in families}
    held_out = _lie_inside(timed, others)
    groups: dict[tuple[Trained, str, str], list[int]] = defaultdict(list)
    for place, score in enumerate(timed):
        kind = _kind(score)
        groups[kind.trained, kind.precision, kind.framework].append(place)
    return tuple(
        StatedErrors(
            *key,
            len(places),
            100.0 * fmean(inside[place] for place in places),
            100.0 * fmean(held_out[place] for place in places),
            fmean(timed[place].error_pct or 0.0 for place in places),
            all((steps := like(_kind(timed[place]), record)) is not None and steps.leans for place in places),
        )
        for key, places in sorted(groups.items())
    )


def _lie_inside(timed: Sequence[Score], records: dict[str, dict[RunKind, PublishedSteps]]) -> list[bool]:
    """Whether each row lies inside the error that the record for its family states."""
    return [
        abs(score.error_pct or 0.0)
        <= math.hypot(
            stated_error(_kind(score), score.implied_pct or 0.0, records[score.family]),
            100.0 * added_error(causes_of(_kind(score), 0.0, records[score.family])),
        )
        for score in timed
    ]


def _with_step_times(scores: Iterable[Score]) -> Iterator[Score]:
    for score in scores:
        if score.quantity == "step_time_s" and score.kind is not None and score.implied_pct and score.error_pct is not None:
            yield score


def _kind(score: Score) -> RunKind:
    assert score.kind is not None  # `_with_step_times` lets no other row through
    return score.kind


def _kinds_of(kind: RunKind) -> Iterator[RunKind]:
    """`kind`, and the wider ones that `predict.published.like` looks for."""
    for gpu, framework, precision in (
        (kind.gpu, kind.framework, kind.precision),
        ("", kind.framework, kind.precision),
        (kind.gpu, "", kind.precision),
        ("", "", kind.precision),
        ("", kind.framework, ""),
        ("", "", ""),
    ):
        yield RunKind(gpu, framework, kind.trained, precision)


def _line(kind: RunKind, scores: Sequence[Score]) -> PublishedSteps:
    errors = [error for score in scores if (error := score.error_pct) is not None]
    longer = [100.0 * (1.0 / (1.0 + error / 100.0) - 1.0) for error in errors]
    low, _, high = quantiles(longer, n=4, method="inclusive")
    implied = [score.implied_pct or 0.0 for score in scores]
    return PublishedSteps(
        kind.gpu,
        kind.framework,
        kind.trained,
        kind.precision,
        len(errors),
        sum(score.fitted for score in scores),
        fmean(abs(error) for error in errors),
        fmean(errors),
        pstdev(errors),
        (low, high),
        widening([(abs(error), each) for error, each in zip(errors, implied, strict=True)]),
    )
