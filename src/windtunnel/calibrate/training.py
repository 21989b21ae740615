"""Host costs and training factors, fitted on published training runs.

Host costs: time of a process to launch its GPU's work (`catalog/frameworks`), fitted on launch-bound runs of one node by coordinate
search over round values (`search.py`), which leaves most of them unchanged. Training factors: time of a kernel in training over its
time in a loop (`catalog/calibration/training.toml`), by GPU architecture, fitted by least squares in log time with a robust loss;
every family has the same weight. A factor has a weak prior (a loop's time) and bounds with a physical meaning (`BOUNDS`).

Neither fit reads the name of a model or row. Blanks of a row keep the values chosen with the stored constants.

Coordinate search over grids of round values, for fits in which most constants should not change.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.calibrate.recipes import TrainingRecipe, fits
from windtunnel.calibrate.record import FitRecord, compare_errors, round_figure
from windtunnel.compute import training
from windtunnel.compute.training import Factors, TrainingFactor
from windtunnel.predict import predict
from windtunnel.reality.jobs.blanks import choose
from windtunnel.reality.jobs.job import draft
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import TrainingRow, read
from windtunnel.spec import Job, load_runtime

HOST_FIELDS = ("launch", "layer", "micro_batch", "step", "collective")

BOUNDS: dict[str, tuple[float, float, float]] = {
    "throttle": (0.0, 1.0, 1.0),
    "matmul": (1.0, 1.0, 1.2),
    "memory": (1.0, 1.0, 1.3),
}
"""Factor -> lowest, expected, highest.

`throttle` is a share of a loop's. Products lose a loop's warm cache and share the chip with copies and calls. Kernels that move
bytes lose at most the cache gain of a loop, 1.26 to 1.30 on the fitted GPUs. Attention's factor stays 1: on Ampere only one family
of the fit runs fused attention, so a factor would describe that family.
"""

PULL = 0.01
"""Weight of the prior, per width of the bounds and per root of the number of rows, as in `kernels.solve`."""

SOFT = 0.05
"""ln error beyond which the loss of a row grows less than quadratically."""

Sample = tuple[str, Job, float, str]
"""Family, job, measured seconds, id of the row."""

Report = Callable[[float], object]
"""Called with the finished share of the work."""


def rows_of(paths: Sequence[str | Path] = ()) -> list[TrainingRow]:
    """Training rows of tables; without one, of the catalogue's."""
    listed = paths or [measurements.FOLDER / "training.csv", measurements.FOLDER / "single_node.csv"]
    return [row for path in listed for row in read(path).training]


def samples_of(rows: Sequence[TrainingRow], recipe: TrainingRecipe) -> list[Sample]:
    """At most `recipe.rows` jobs of each family; rows that the model refuses are left out, and named on standard error.

    Raises FileError where a family of the recipe has no usable row.
    """
    samples: list[Sample] = []
    for family in recipe.families:
        usable = [row for row in rows if row.family == family and recipe.takes(row)]
        count = min(recipe.rows, len(usable))
        for row in (usable[i * len(usable) // count] for i in range(count)):
            drafted = draft(row)
            chosen = drafted if isinstance(drafted, Skipped) else choose(drafted, predict)
            if isinstance(chosen, Skipped):
                print(f"{row.id} left out: {chosen.reason[:100]}", file=sys.stderr)
            elif row.iter_time_s:
                samples.append((family, chosen[0].job, row.iter_time_s, row.id))
    if lacking := sorted(set(recipe.families) - {sample[0] for sample in samples}):
        raise FileError("fit", "no usable row of " + ", ".join(lacking), "a table with rows of every family of the recipe")
    return samples


def errors(samples: Sequence[Sample], seconds: Callable[[Job], float]) -> dict[str, list[float]]:
    """Signed errors in percent by family."""
    listed: dict[str, list[float]] = {}
    for family, job, measured, _ in samples:
        listed.setdefault(family, []).append(100.0 * (seconds(job) / measured - 1.0))
    return listed


def mean_error(samples: Sequence[Sample], seconds: Callable[[Job], float]) -> float:
    """Mean over families of the mean |error|, in percent."""
    return fmean(fmean(map(abs, each)) for each in errors(samples, seconds).values())


def with_host(job: Job, values: Values) -> Job:
    """The job with other host costs."""
    runtime = job.runtime.model_copy(update={"host": job.runtime.host.model_copy(update=values)})
    return job.model_copy(update={"runtime": runtime})


def fit_host(rows: Sequence[TrainingRow]) -> tuple[Values, FitRecord]:
    """Host costs in seconds, and the record of the fit."""
    recipe = fits().host
    stored = load_runtime(recipe.framework).host
    before = {field: float(getattr(stored, field)) for field in HOST_FIELDS}
    samples = samples_of(rows, recipe)

    def seconds(values: Values) -> Callable[[Job], float]:
        return lambda job: predict(with_host(job, values)).step_time_s

    after = search(before, lambda values: mean_error(samples, seconds(values)))
    record = FitRecord(
        f"host costs of {recipe.framework}",
        "windtunnel fit host",
        {field: (before[field], after[field]) for field in HOST_FIELDS},
        compare_errors(errors(samples, seconds(before)), errors(samples, seconds(after))),
        tuple(sample[3] for sample in samples),
    )
    return after, record


def fit_factors(
    rows: Sequence[TrainingRow], architecture: str, report: Report = lambda share: None
) -> tuple[TrainingFactor, FitRecord]:
    """Factors of an architecture, and the record of the fit."""
    recipe, table = fits().training[architecture], dict(training.factors())
    samples = samples_of(rows, recipe)
    stored = table.get(architecture, TrainingFactor())
    before = {field: float(getattr(stored, field)) for field in BOUNDS}

    def seconds(values: Values) -> Callable[[Job], float]:
        factors: Factors = {**table, architecture: factor_of(values)}
        return lambda job: predict(job, factors=factors).step_time_s

    after = solve_factors(samples, seconds, report)
    record = FitRecord(
        f"training factors of {architecture}",
        f"windtunnel fit training --architecture {architecture}",
        {field: (before[field], after[field]) for field in BOUNDS},
        compare_errors(errors(samples, seconds(before)), errors(samples, seconds(after))),
        tuple(sample[3] for sample in samples),
    )
    return factor_of(after, recipe.families), record


def solve_factors(
    samples: Sequence[Sample], seconds: Callable[[Values], Callable[[Job], float]], report: Report = lambda share: None
) -> Values:
    """The factors with the least robust squared ln error, with equal weights of families, to three digits after the point."""
    from scipy.optimize import least_squares

    names = list(BOUNDS)
    low, expected, high = (np.array([BOUNDS[name][i] for name in names]) for i in range(3))
    counts: dict[str, int] = {}
    for family, *_ in samples:
        counts[family] = counts.get(family, 0) + 1
    weights = np.array([np.sqrt(len(samples) / len(counts) / counts[family]) for family, *_ in samples])
    pull = PULL * np.sqrt(len(samples))
    calls = 0

    def residuals(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        report(min(0.99, calls / MOST_CALLS))
        one = seconds(dict(zip(names, map(float, x), strict=True)))
        miss = np.array([np.log(one(job) / measured) for _, job, measured, _ in samples])
        return np.concatenate([weights * miss, pull * (x - expected) / (high - low)])

    start = np.clip(expected, low + 0.05 * (high - low), high - 0.05 * (high - low))
    solution = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=SOFT, diff_step=0.01, max_nfev=MOST_STEPS
    )
    return {name: round(float(value), 3) for name, value in zip(names, solution.x, strict=True)}


MOST_STEPS = 15
MOST_CALLS = MOST_STEPS * (len(BOUNDS) + 1)


def factor_of(values: Values, families: tuple[str, ...] = ()) -> TrainingFactor:
    """The factors that `BOUNDS` names, as a record of `training.toml`."""
    return TrainingFactor(fitted_on=families, **values)


def written_host(text: str, values: Values) -> str:
    """The framework's file with other numbers in its first `[host]` section."""
    head, mark, tail = text.partition("[host]\n")
    for field, value in values.items():
        shown = f"{1e3 * value:g}ms" if field == "step" else f"{1e6 * value:g}us"
        tail, count = re.subn(rf'^{field} = "[^"]*"', f'{field} = "{shown}"', tail, count=1, flags=re.MULTILINE)
        if not mark or not count:
            raise FileError("frameworks", field, "a [host] section with this field")
    return head + mark + tail


def written_factors(text: str, table: dict[str, TrainingFactor]) -> str:
    """training.toml with `table` after the comment at its head."""
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    parts = []
    for name, factor in table.items():
        lines = [f"{field} = {round_figure(getattr(factor, field)):g}" for field in ("throttle", "matmul", "attention", "memory")]
        families = ", ".join(f'"{family}"' for family in factor.fitted_on)
        parts.append("\n".join([f"[{name}]", *lines, f"fitted_on = [{families}]"]) + "\n")
    return head + "\n" + "\n".join(parts)


GAIN = 0.1
"""Percentage points of error by which a change must improve."""

Values = dict[str, float]


def _steps(first: float, last: float, step: float, scale: float = 1.0) -> tuple[float, ...]:
    return tuple(round((first + step * i) * scale, 9) for i in range(round((last - first) / step) + 1))


GRIDS: dict[str, tuple[float, ...]] = {
    "launch": _steps(4, 40, 2, 1e-6),
    "layer": _steps(0, 1500, 100, 1e-6),
    "micro_batch": _steps(0, 2000, 250, 1e-6),
    "step": _steps(1, 20, 1, 1e-3),
    "collective": _steps(0, 100, 10, 1e-6),
}
"""Values that each constant may take, in SI units."""


def search(start: Values, error: Callable[[Values], float], gain: float = GAIN) -> Values:
    """Coordinate search over `GRIDS`: each field moves to better neighbours, if that gains more than `gain`."""
    best, least = dict(start), error(start)
    moved = True
    while moved:
        moved = False
        for field in start:
            trial, reached = _walk(best, field, error, least)
            if reached < least - gain:
                best, least, moved = trial, reached, True
    return best


def _walk(start: Values, field: str, error: Callable[[Values], float], least: float) -> tuple[Values, float]:
    grid = sorted({*GRIDS[field], round(start[field], 9)})
    best = start
    for direction in (1, -1):
        at = grid.index(round(best[field], 9)) + direction
        while 0 <= at < len(grid):
            trial = {**best, field: grid[at]}
            if (reached := error(trial)) >= least:
                break
            best, least, at = trial, reached, at + direction
    return best, least
