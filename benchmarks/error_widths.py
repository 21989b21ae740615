"""Fits the errors that a prediction's causes add (`catalog/calibration/error_widths.toml`) on half of the families of tables of
measured runs, and shows how many step times lie inside on both halves.

    python benchmarks/error_widths.py training_more.csv training_single_node_more.csv ...

Families alternate between the halves in the order of their names, so that no choice is made. Each width is the one of a grid for
which the share of rows inside once is nearest to 68 % and inside twice at least 92 %, over families of equal weight.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from windtunnel import predict
from windtunnel.predict.published import kind_of_run, stated_error
from windtunnel.predict.rests import Causes, ErrorWidths, added_error, causes_of, host_seconds, longest, widths_of_catalogue
from windtunnel.reality.jobs.blanks import choose
from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import TrainingRow, read

ONCE, TWICE = 0.68, 0.92
GRID = {
    "stand_in": (10.0, 15.0, 20.0, 30.0),
    "unrecorded": (0.0, 5.0, 10.0, 15.0, 20.0),
    "experts": (0.0, 8.0, 15.0, 25.0),
    "gpu": (0.0, 5.0, 10.0, 15.0),
    "machine": (0.0, 3.0, 6.0, 10.0),
}


class Claim(NamedTuple):
    """A predicted step beside its measurement, in seconds; `base`: its stated error before causes."""

    family: str
    measured: float
    predicted: float
    base: float
    causes: Causes


def claim_of(row: TrainingRow) -> Claim | None:
    """The claim of a row; None where it has no step time or is refused."""
    drafted = draft(row)
    if not row.iter_time_s or not isinstance(drafted, Draft):
        return None
    chosen = choose(drafted, predict)
    if isinstance(chosen, Skipped):
        return None
    prediction = chosen[0]
    kind = kind_of_run(prediction.job)
    causes = causes_of(kind, host_seconds(prediction.job))
    return Claim(row.family, row.iter_time_s, prediction.step_time_s, stated_error(kind, prediction.error_of_parts), causes)


def inside(claim: Claim, widths: ErrorWidths, times: float) -> bool:
    """Whether the measured step lies within `times` the stated error, or in the interval of its host."""
    error = math.hypot(claim.base, added_error(claim.causes, widths))
    end = longest(claim.predicted, error, claim.causes, widths)
    far = claim.predicted + times * (end - claim.predicted)
    return abs(claim.predicted - claim.measured) <= times * error * claim.measured or claim.predicted <= claim.measured <= far


def loss(families: Sequence[Sequence[Claim]], widths: ErrorWidths) -> float:
    """Distance of the mean shares inside from what is aimed at, and a little for width."""
    once, twice = ([fmean(inside(claim, widths, times) for claim in claims) for claims in families] for times in (1.0, 2.0))
    width = fmean(median(math.hypot(claim.base, added_error(claim.causes, widths)) for claim in claims) for claims in families)
    return abs(fmean(once) - ONCE) + 2.0 * max(0.0, TWICE - fmean(twice)) + 0.5 * width


def shown(claims: Sequence[Claim], widths: ErrorWidths) -> str:
    """Rows, and shares inside once and twice, in words."""
    once, twice = (100.0 * fmean(inside(claim, widths, times) for claim in claims) for times in (1.0, 2.0))
    stated = 100.0 * median(math.hypot(claim.base, added_error(claim.causes, widths)) for claim in claims)
    return f"{len(claims):5d} rows, {once:3.0f} % within once, {twice:3.0f} % within twice, median stated {stated:.1f} %"


def candidates() -> list[dict[str, float]]:
    """Every combination of the grid in which a framework that nobody names is no better known than one with an entry."""
    combined = (dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values()))
    return [values for values in combined if values["stand_in"] >= values["unrecorded"]]


def main(paths: Sequence[str]) -> None:
    """Fit, and print."""
    rows = [row for path in paths for row in read(Path(path)).training]
    with ProcessPoolExecutor() as pool:
        claims = [claim for claim in pool.map(claim_of, rows, chunksize=8) if claim is not None]
    groups: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[claim.family].append(claim)
    names = sorted(groups)
    fitted, tested = names[::2], names[1::2]
    start = widths_of_catalogue()
    best = min(
        (replace(start, **values) for values in candidates()),
        key=lambda widths: loss([groups[name] for name in fitted], widths),
    )
    print("\n".join(f"{name} = {getattr(best, name)}" for name in GRID))
    print("fitted_on =", fitted)
    for title, part in (("fitted", fitted), ("tested", tested)):
        print(title, shown([claim for name in part for claim in groups[name]], best))
    for name in names:
        print(f"{name:26s}{'fitted' if name in fitted else 'tested':8s}{shown(groups[name], best)}")


if __name__ == "__main__":
    main(sys.argv[1:])
