"""Redo the constants that rest on training runs.

    python -m windtunnel.calibrate.training {host|training} [--rows FOLDER] [--write]

`host`: what a Megatron-DeepSpeed process spends feeding its GPU (catalog/frameworks), on launch-bound runs of one node. `training`:
time of a kernel in training over its time in a loop (catalog/calibration/training.toml), by GPU architecture. Neither looks at a
model's or a row's name: a constant is one number for all rows of its recipe.

Method: coordinate search over a grid of round values, from the stored ones, for the least mean over families of the mean |error| of
the step time. A value moves only where that improves the error by more than 0.1 points, so constants that do not matter stay.
At most `Recipe.rows` rows of a family take part, spread evenly over its table; blanks of a row keep what they were before the fit.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.calibrate.search import Values, search
from windtunnel.compute import training
from windtunnel.compute.training import Factors, TrainingFactor
from windtunnel.predict import predict
from windtunnel.reality import measurements
from windtunnel.reality.bars import NO_BAR, Line, measure
from windtunnel.reality.blanks import choose
from windtunnel.reality.jobs import draft
from windtunnel.reality.report import Score
from windtunnel.reality.rows import TrainingRow, read
from windtunnel.reality.skipped import Skipped
from windtunnel.reality.validate import score_training
from windtunnel.spec import Job, load_runtime
from windtunnel.spec.catalog import ROOT

HOST_FRAMEWORK = "megatron-deepspeed"
MEGATRON = ("megatron", "megatron-deepspeed")

Sample = tuple[str, Job, float]
"""Family, job, measured seconds."""


HOST_FIELDS = ("launch", "layer", "micro_batch", "step", "collective")
FACTOR_FIELDS = ("throttle", "matmul", "attention", "memory")


@dataclass(frozen=True)
class Recipe:
    """Which rows a fit may use: families, frameworks and precisions as the tables spell them, no fully
    sharded Megatron, and at most `rows` of a family, spread evenly."""

    families: tuple[str, ...]
    frameworks: tuple[str, ...] = MEGATRON
    precisions: tuple[str, ...] = ("bf16", "fp16")
    rows: int = 24

    def takes(self, row: TrainingRow) -> bool:
        sharded = row.framework in MEGATRON and row.sharding in ("zero3", "fsdp")
        return (
            row.family in self.families
            and row.framework in self.frameworks
            and row.precision in self.precisions
            and bool(row.iter_time_s)
            and not sharded
        )


HOST = Recipe(("A100-vTrain-node",), rows=120)
FACTORS = {
    "ampere": Recipe(("A100-vTrain", "A100-Megatron-Selene", "A100-ByteDance")),
    "hopper": Recipe(("MosaicML-H100", "H100-Megatron-Eos"), ("fsdp", "megatron")),
}
BY_HAND = ("H100-NeMo", "Blackwell-NeMo-GB200")
"""Families on whose rows constants were set without a fit: NeMo's host costs by module (catalog/frameworks/nemo.toml)."""


def rows_of(folder: Path | None) -> list[TrainingRow]:
    """Training rows of the catalogue's measurements, or of `folder` (training.csv and, if there, training_single_node.csv)."""
    if folder is None:
        paths = [measurements.FOLDER / "training.csv", measurements.FOLDER / "single_node.csv"]
    else:
        paths = [folder / "training.csv", *(path for path in (folder / "training_single_node.csv",) if path.exists())]
    return [row for path in paths for row in read(path).training]


def samples_of(rows: Sequence[TrainingRow], recipe: Recipe) -> list[Sample]:
    """At most `recipe.rows` jobs of each family; those that the model refuses are left out, and said."""
    found: list[Sample] = []
    for family in recipe.families:
        taken = [row for row in rows if row.family == family and recipe.takes(row)]
        count = min(recipe.rows, len(taken))
        for row in (taken[i * len(taken) // count] for i in range(count)):
            made = draft(row)
            chosen = made if isinstance(made, Skipped) else choose(made, predict)
            if isinstance(chosen, Skipped):
                print(f"{row.id} left out: {chosen.reason[:100]}", file=sys.stderr)
            elif row.iter_time_s:
                found.append((family, chosen[0].job, row.iter_time_s))
    if lacking := sorted(set(recipe.families) - {family for family, _, _ in found}):
        raise FileError("fit", "no usable row of " + ", ".join(lacking), "a table with rows of every family of the recipe")
    return found


def errors(samples: Sequence[Sample], seconds: Callable[[Job], float]) -> dict[str, float]:
    """Mean |error| in percent by family."""
    sizes: dict[str, list[float]] = {}
    for family, job, measured in samples:
        sizes.setdefault(family, []).append(100.0 * abs(seconds(job) / measured - 1.0))
    return {family: fmean(found) for family, found in sizes.items()}


def with_host(job: Job, values: Values) -> Job:
    """The job with other host costs: a new one, as a copy would keep what the old one has computed."""
    runtime = job.runtime.model_copy(update={"host": job.runtime.host.model_copy(update=values)})
    return Job(name=job.name, model=job.model, plan=job.plan, runtime=runtime, cluster=job.cluster)


def host_seconds(job: Job, values: Values) -> float:
    """Predicted step with other host costs."""
    return predict(with_host(job, values)).step_time_s


def factor_seconds(job: Job, table: Factors) -> float:
    """Predicted step with other training factors."""
    return predict(job, factors=table).step_time_s


def fit_host(rows: Sequence[TrainingRow]) -> tuple[Values, Values]:
    """(stored, fitted) host costs in seconds."""
    stored = load_runtime(HOST_FRAMEWORK).host
    old = {field: float(getattr(stored, field)) for field in HOST_FIELDS}
    samples = samples_of(rows, HOST)
    new = search(old, lambda values: fmean(errors(samples, lambda job: host_seconds(job, values)).values()))
    for field in HOST_FIELDS:
        print(f"{HOST_FRAMEWORK:20s} {field:12s} {1e6 * old[field]:8.0f} us -> {1e6 * new[field]:8.0f} us")
    _compare(samples, lambda job: host_seconds(job, old), lambda job: host_seconds(job, new))
    return old, new


def fit_factors(rows: Sequence[TrainingRow], architecture: str) -> tuple[TrainingFactor, TrainingFactor]:
    """(stored, fitted) factors of an architecture."""
    recipe, table = FACTORS[architecture], dict(training.factors())
    stored = table[architecture]
    samples = samples_of(rows, recipe)
    old = {field: float(getattr(stored, field)) for field in FACTOR_FIELDS}

    def seconds(job: Job, values: Values) -> float:
        return factor_seconds(job, {**table, architecture: _factor(values)})

    new = search(old, lambda values: fmean(errors(samples, lambda job: seconds(job, values)).values()))
    for field in FACTOR_FIELDS:
        print(f"{architecture:20s} {field:12s} {old[field]:8.2f}    -> {new[field]:8.2f}")
    _compare(samples, lambda job: seconds(job, old), lambda job: seconds(job, new))
    return stored, _factor(new, recipe.families)


def _factor(values: Values, families: tuple[str, ...] = ()) -> TrainingFactor:
    return TrainingFactor(values["throttle"], values["matmul"], values["attention"], values["memory"], families)


def _compare(samples: Sequence[Sample], before: Callable[[Job], float], after: Callable[[Job], float]) -> None:
    was, now = errors(samples, before), errors(samples, after)
    for family in was:
        rows = sum(name == family for name, _, _ in samples)
        print(f"    {family:28s} {rows:3d} rows   mean |error| {was[family]:6.2f} % -> {now[family]:6.2f} %")


def written_host(text: str, values: Values) -> str:
    """The framework's file with other numbers in its first `[host]` section."""
    head, mark, tail = text.partition("[host]\n")
    for field, value in values.items():
        said = f"{1e3 * value:g}ms" if field == "step" else f"{1e6 * value:g}us"
        tail, count = re.subn(rf'^{field} = "[^"]*"', f'{field} = "{said}"', tail, count=1, flags=re.MULTILINE)
        if not mark or not count:
            raise FileError("frameworks", field, "a [host] section with this field")
    return head + mark + tail


def written_factors(text: str, table: dict[str, TrainingFactor]) -> str:
    """training.toml with `table` behind the comment that stands at its head."""
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    parts = []
    for name, factor in table.items():
        lines = [f"{field} = {getattr(factor, field):g}" for field in FACTOR_FIELDS]
        families = ", ".join(f'"{family}"' for family in factor.fitted_on)
        parts.append("\n".join([f"[{name}]", *lines, f"fitted_on = [{families}]"]) + "\n")
    return head + "\n" + "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print, and with `--write` store what is better and keeps the bars."""
    parser = argparse.ArgumentParser(prog="python -m windtunnel.calibrate.training", description="Redo constants.")
    parser.add_argument("what", choices=("host", "training"))
    parser.add_argument("--rows", type=Path, metavar="FOLDER", help="tables to fit on; left out: the catalogue's measurements")
    parser.add_argument("--write", action="store_true", help="store the result if all accuracy bars hold with it")
    given = parser.parse_args(arguments)
    try:
        rows = rows_of(given.rows)
        return _host(rows, given.write) if given.what == "host" else _training(rows, given.write)
    except WindtunnelError as error:
        print(error, file=sys.stderr)
        return 2


def _host(rows: Sequence[TrainingRow], write: bool) -> int:
    old, new = fit_host(rows)

    def score(row: TrainingRow) -> list[Score]:
        return score_training(row, lambda job: predict(with_host(job, new) if job.runtime.framework == HOST_FRAMEWORK else job))

    path = ROOT / "frameworks" / f"{HOST_FRAMEWORK}.toml"
    return _store(path, old != new, write, lambda: measure(rows, score), lambda text: written_host(text, new))


def _training(rows: Sequence[TrainingRow], write: bool) -> int:
    """Each architecture by itself: a bar that forbids one does not stop the other."""
    failed = 0
    table = dict(training.factors())
    for architecture in FACTORS:
        old, new = fit_factors(rows, architecture)
        trial = {**table, architecture: new}

        def lines(trial: dict[str, TrainingFactor] = trial) -> list[Line]:
            return measure(rows, lambda row: score_training(row, lambda job: predict(job, factors=trial)))

        def text(stored: str, trial: dict[str, TrainingFactor] = trial) -> str:
            return written_factors(stored, trial)

        code = _store(training.FILE, old != new, write, lines, text)
        table = trial if code == 0 and write else table
        failed = max(failed, code)
    return failed


def _store(path: Path, changed: bool, write: bool, bars: Callable[[], list[Line]], text: Callable[[str], str]) -> int:
    """Write what moved, if it should be written and every bar holds; 1 where a bar forbids it."""
    if not changed:
        print("nothing moves by more than it must: the stored constants stand")
        return 0
    if not write:
        return 0
    if missed := [line for line in bars() if not line.holds and line.wanted != NO_BAR]:
        for line in missed:
            print(
                f"not written: {line.bar.name} would have mean {line.found.mape_pct} %, median {line.found.median_abs_pct} %; "
                f"the bar is {line.wanted}"
            )
        return 1
    path.write_text(text(path.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written: {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
