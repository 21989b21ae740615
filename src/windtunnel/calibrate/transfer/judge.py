"""Leave-one-GPU-out: predicts each GPU by every method from the others, and compares with its measurements.

The data-sheet method: every time scales with the ratio of peak FLOP/s.

windtunnel's method: tile and wave curves with the new GPU's SMs, cache and bandwidth, limited by its power and special
functions.

The curves are those of a relative of the same architecture, scaled by the laws of `law.py`; without a relative, those fitted on all
measured GPUs together. A measured best matmul caps the rate, if one is known.

Two formulas: compute-bound time scales with peak FLOP/s, memory-bound time with bandwidth; launches do not change.

The form that SimAI's authors describe for GPUs that are not out yet ("SimAI-CP-Model"; their own code is not open).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.calibrate.transfer import evaluate, fit
from windtunnel.calibrate.transfer.fit import MADE_FOR, foreign, native
from windtunnel.calibrate.transfer.method import Known, Method, Predicted, Relative, nearest
from windtunnel.calibrate.transfer.rows import MeasuredGpu, TransferRows
from windtunnel.compute.curves import Provenance
from windtunnel.compute.kernel_file import available, load
from windtunnel.compute.transfer.joint import JointCurves, stored_curves
from windtunnel.compute.transfer.law import attention_for, gemm_for, sheet, sheet_of
from windtunnel.spec.machine import GPU


def two_formula(kind: str, rows: TransferRows, gpu: GPU, known: Known) -> Predicted:
    """Times of the nearest relative, each scaled by its bound there: FLOP / peak or bytes / bandwidth.

    The time of the relative's shortest kernel is subtracted first and added again unchanged.
    """
    on = sheet(gpu)
    one = nearest(kind, on, known)
    if kind == "gemm":
        launch = np.full(len(rows), one.gemm.latency if one.gemm is not None else 0.0)
    else:
        launch = np.array([one.attention[way].latency for way in rows.way])
    computes = rows.flops / one.on.peak >= rows.moved / one.on.bandwidth
    ratio = np.where(computes, one.on.peak / on.peak, one.on.bandwidth / on.bandwidth)
    return Predicted(launch + (one.seconds(kind, rows) - launch) * ratio, one.on.id)


def ours(kind: str, rows: TransferRows, gpu: GPU, known: Known) -> Predicted:
    """Seconds by a relative of the same architecture, else by the curves shared by all."""
    on = sheet(gpu)
    same = Known([one for one in known.relatives if one.on.architecture == on.architecture and one.has(kind)], known.joint)
    base = nearest(kind, on, same) if same.relatives else None
    source = base.on.id if base is not None else ", ".join(known.joint.fitted_on)
    if kind == "gemm":
        own = None if base is None or base.gemm is None else (base.gemm, base.on)
        return Predicted(evaluate.gemm(gemm_for(gpu, known.joint, own), on, rows), source)
    curves = attention_for(gpu, known.joint, None if base is None else (base.attention, base.on))
    return Predicted(evaluate.attention(curves, on, rows), source)


def naive(kind: str, rows: TransferRows, gpu: GPU, known: Known) -> Predicted:
    """Times of the nearest relative (by its own curves at these shapes) times peak over peak."""
    on = sheet(gpu)
    one = nearest(kind, on, known)
    return Predicted(one.seconds(kind, rows) * one.on.peak / on.peak, one.on.id)


METHODS: dict[str, Method] = {"naive": naive, "two_formula": two_formula, "ours": ours}

BEST = "ours_best"
"""`ours`, given the best matmul measured on the GPU."""

FOREIGN = "older attention"
POOLED = "both"


@dataclass(frozen=True)
class Result:
    """Log errors ln(predicted / measured) of one class on one GPU by one method, as shares; `source`: the GPUs it rests on."""

    gpu: str
    kind: str
    method: str
    source: str
    errors: Floats

    @property
    def n(self) -> int:
        return len(self.errors)

    @property
    def median(self) -> float:
        return float(np.median(np.abs(self.errors)))

    @property
    def p90(self) -> float:
        return float(np.quantile(np.abs(self.errors), 0.9))

    @property
    def bias(self) -> float:
        return float(np.mean(self.errors))


Left = frozenset[str]
Without = Callable[[Left], JointCurves]
"""GPUs left out -> the curves that the others share."""


@dataclass(frozen=True)
class Background:
    """Each GPU's own curves, and a function that gives the shared ones without some GPUs."""

    relatives: Mapping[str, Relative]
    without: Without


def background(cases: Sequence[MeasuredGpu]) -> Background:
    """Curves from the cases. With fewer than two GPUs' rows of a class, the catalogue's curves and its stored shared ones."""
    enough = sum(len(case.gemm) >= fit.ENOUGH for case in cases) > 1 and sum(len(native(case)) >= fit.FEW for case in cases) > 1
    if not enough:
        return Background({name: lent(name) for name in available()}, stored_without)
    relatives = {}
    for case in cases:
        on, fused = sheet(case.gpu), native(case)
        gemm = fit.gemm_curve(on, case.gemm) if len(case.gemm) >= fit.ENOUGH else None
        both = all((fused.way == way).sum() >= fit.FEW for way in fit.WAYS)
        relatives[case.gpu.id] = Relative(on, gemm, fit.attention_curves(on, fused) if both else {})
    own = {name: one.gemm for name, one in relatives.items() if one.gemm is not None}

    def fit_without(left: Left) -> JointCurves:
        return fit.joint(
            [case for case in cases if case.gpu.id not in left], {key: curve for key, curve in own.items() if key not in left}
        )

    return Background(relatives, fit_without)


def stored_without(left: Left) -> JointCurves:
    """The catalogue's curves without one GPU; SpecError for more than one, which it does not hold."""
    file = stored_curves()
    fitted = sorted(left & set(file.every.fitted_on))
    if len(fitted) > 1:
        raise SpecError("--leave", ", ".join(fitted), "one GPU without datasets", "Several at once need --data of the others.")
    return file.without[fitted[0]] if fitted else file.every


def lent(name: str) -> Relative:
    """A catalogue file as a relative, with the attention library of its architecture."""
    kernels = load(name)
    known = [library for library in MADE_FOR.get(kernels.architecture, ()) if library in kernels.attention]
    library = known[0] if known else next(iter(kernels.attention))
    direct = kernels.tables[f"attention.{library}"].provenance <= Provenance.MODELLED
    return Relative(sheet_of(kernels), kernels.gemm, kernels.attention[library], direct)


def leave_out(cases: Sequence[MeasuredGpu], behind: Background, without: Without, together: Left = frozenset()) -> list[Result]:
    """Every case with rows predicted without it, by every method; nothing measured on it enters, but its best matmul for `BEST`.

    `together`: only these GPUs, each predicted without all of them. `without`: `behind.without`, or a cached version of it.
    SpecError if nothing remains.
    """
    results: list[Result] = []
    for case in cases:
        name = case.gpu.id
        if (together and name not in together) or not len(case.gemm) + len(case.attention):
            continue
        left = together or frozenset((name,))
        known = Known([one for key, one in behind.relatives.items() if key not in left], without(left))
        blind = case.gpu.model_copy(update={"achievable": {}})
        runs = [(method, blind, METHODS[method]) for method in METHODS]
        if case.gpu.achievable:
            runs.append((BEST, case.gpu, ours))
        for kind, part, rows in _parts(case):
            if not any(one.has(kind) for one in known.relatives):
                continue
            for method, gpu, run in runs:
                answer = run(kind, rows, gpu, known)
                results.append(Result(name, part, method, answer.source, np.log(answer.seconds / rows.seconds)))
    return results


def _parts(case: MeasuredGpu) -> Iterable[tuple[str, str, TransferRows]]:
    for kind, part, rows in (
        ("gemm", "gemm", case.gemm),
        ("attention", "attention", native(case)),
        ("attention", FOREIGN, foreign(case)),
    ):
        if len(rows):
            yield kind, part, rows


POINTS = np.linspace(0.0, 1.0, 1001)


def pool_results(results: Sequence[Result]) -> list[Result]:
    """Products and attention together, by GPU and method; then over all GPUs ("all").

    In "all" every GPU has the same weight; GPUs with fewer than `fit.FEW` rows are left out.
    """
    some = [r for r in results if r.kind in ("gemm", "attention")]
    methods = dict.fromkeys(r.method for r in some)
    by_gpu = [_join_results(gpu, method, some) for gpu in dict.fromkeys(r.gpu for r in some) for method in methods]
    pool = [one for one in by_gpu if one.n]
    for method in methods:
        parts = [np.quantile(one.errors, POINTS) for one in pool if one.method == method and one.n >= fit.FEW]
        if len(parts) > 1:
            pool.append(Result("all", POOLED, method, "", np.concatenate(parts)))
    return pool


def _join_results(gpu: str, method: str, results: Sequence[Result]) -> Result:
    parts = [r.errors for r in results if r.gpu == gpu and r.method == method]
    return Result(gpu, POOLED, method, "", np.concatenate(parts) if parts else np.zeros(0))
