"""Each measured GPU predicted from the others: the study behind `windtunnel fit transfer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.calibrate.transfer.errors import Best, best_matmuls, errors
from windtunnel.calibrate.transfer.judge import Result, background, leave_out, pool_results
from windtunnel.calibrate.transfer.rows import MeasuredGpu, case, merge_cases, published_cases
from windtunnel.compute.bench import gpu_of
from windtunnel.compute.transfer.joint import JointCurves, Stored, text
from windtunnel.formats.machines.kernels.measurements import import_all


@dataclass(frozen=True)
class TransferStudy:
    """`results`: errors of each GPU that was left out, by class and method; `together`: of all of them; `bests`: the best matrix
    product of each, where none was named. `without` gives the curves that are shared without some GPUs."""

    results: tuple[Result, ...]
    together: tuple[Result, ...]
    bests: tuple[Best, ...]
    without: Callable[[frozenset[str]], JointCurves]

    def curves(self, path: str = "joint.json") -> str:
        """The text of catalog/kernels/transfer/joint.json, for a file at `path`. SpecError without curves of two GPUs with matrix
        products."""
        if not self.bests or len({result.gpu for result in self.results if result.kind == "gemm"}) < 2:
            raise SpecError(
                "--write",
                path,
                "curves of at least two GPUs with matrix products, each left out once",
                "Add --data, and no --leave.",
            )
        every = self.without(frozenset())
        each = {name: self.without(frozenset((name,))) for name in every.fitted_on}
        return text(Stored(every, each, errors(self.results, self.bests)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; errors in percent, rates in FLOP/s."""
        return {
            "results": [_row(one) for one in self.results],
            "together": [_row(one) for one in self.together],
            "best_matmul": [{"gpu": b.gpu, "measured": b.measured, "naive": b.naive, "ours": b.ours} for b in self.bests],
        }


def read_cases(paths: Sequence[str | Path] = ()) -> list[MeasuredGpu]:
    """Measured GPUs: published ones, and every dataset of the paths; a folder without one is read as one GPU's files."""
    cases = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileError(str(path), "no such file or folder", "a dataset, or a folder of datasets")
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else []
        for one in files or [path]:
            cases += [case(gpu_of(imported.data.about), imported.data) for imported in import_all(one)]
    return merge_cases([*published_cases(), *cases])


def study_transfer(cases: Sequence[MeasuredGpu], leave: Sequence[str] = ()) -> TransferStudy:
    """Leaves each GPU out, or those of `leave` together, and predicts it from the others. UnknownName for one that was not
    measured."""
    measured = [one.gpu.id for one in cases]
    for name in leave:
        if name not in measured:
            raise UnknownName("--leave", name, measured)
    behind = background(cases)
    without: Callable[[frozenset[str]], JointCurves] = lru_cache(maxsize=None)(behind.without)
    results = leave_out(cases, behind, without, frozenset(leave))
    bests = [] if leave else best_matmuls(lambda left: without(left & frozenset(behind.relatives)))
    return TransferStudy(tuple(results), tuple(pool_results(results)), tuple(bests), without)


def _row(one: Result) -> dict[str, Any]:
    return {
        "gpu": one.gpu,
        "kind": one.kind,
        "method": one.method,
        "rests_on": one.source,
        "n": one.n,
        "median_pct": 100.0 * one.median,
        "p90_pct": 100.0 * one.p90,
        "bias_pct": 100.0 * one.bias,
    }
