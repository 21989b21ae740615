"""What the prediction of a job rests on, by class of kernels and calls: seconds, what is behind them, share of the stated error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.compute import PROVENANCES, estimate
from windtunnel.compute.row_names import KINDS
from windtunnel.spec import Job
from windtunnel.workload import Kind, Workload, build, executions

NETWORK_ERROR = 0.15
"""Relative error assumed of calls, where the compiled core, which prices them, is not there."""

CALLS = "collectives"
UNSEEN = ("assumed", "transferred")
_NAMES = {
    **{kind: name for name, kind in KINDS.items() if name != "permute"},
    Kind.ATTENTION_BACKWARD: "attention",
    Kind.SCAN: "scan",
}


@dataclass(frozen=True)
class Reason:
    """One class of kernels, or `collectives`. `share`: of the step's busy seconds; `error`: of the stated error; `basis`: shares of
    the class's seconds by provenance."""

    what: str
    share: float
    error: float
    basis: dict[str, float]

    def in_words(self) -> str:
        """Such as: `gemm: 61 % of the step, 48 % of its stated error, assumed`."""
        known = ", ".join(f"{name} {100 * part:.0f} %" for name, part in self.basis.items() if part >= 0.01)
        return f"{self.what}: {100 * self.share:.0f} % of the step, {100 * self.error:.0f} % of its stated error; {known}"


def reasons_of(jobs: Sequence[Job]) -> tuple[Reason, ...]:
    """Reasons of all jobs together, the largest share of the stated error first."""
    seconds: dict[tuple[str, str], float] = {}
    errors: dict[str, float] = {}
    for job in jobs:
        for what, name, lasts, error in _rows(build(job)):
            seconds[what, name] = seconds.get((what, name), 0.0) + lasts
            errors[what] = errors.get(what, 0.0) + error
    total, wrong = sum(seconds.values()) or 1.0, sum(errors.values()) or 1.0
    made = []
    for what, error in errors.items():
        parts = {name: lasts for (other, name), lasts in seconds.items() if other == what}
        whole = sum(parts.values())
        made.append(Reason(what, whole / total, error / wrong, {name: part / whole for name, part in parts.items() if whole > 0}))
    return tuple(sorted(made, key=lambda reason: -reason.error))


def _rows(workload: Workload) -> list[tuple[str, str, float, float]]:
    """(class, provenance, seconds in a step, seconds of stated error) of each row of the busiest stage."""
    job, ops = workload.job, workload.ops
    kernels = estimate(ops, job.cluster.gpu, job.kernel_runtime)
    seconds, errors = kernels.seconds.copy(), kernels.relative_error.copy()
    provenance = [PROVENANCES[code] for code in kernels.provenance.tolist()]
    for row, (lasts, name, error) in _calls(workload).items():
        seconds[row], provenance[row], errors[row] = lasts, name, error
    stages = [executions(workload, stage) for stage in range(len(workload.stages))]
    counts = max(stages, key=lambda runs: float((runs * seconds).sum()))
    rows = []
    for row in np.nonzero(counts * seconds > 0)[0].tolist():
        kind = Kind(int(ops.kind[row]))
        what = CALLS if kind is Kind.COMM else _NAMES.get(kind, kind.name.lower())
        lasts = float(counts[row] * seconds[row])
        rows.append((what, provenance[row], lasts, lasts * float(errors[row])))
    return rows


def _calls(workload: Workload) -> dict[int, tuple[float, str, float]]:
    """(seconds, provenance, relative error) of every call; none where the compiled core is not there."""
    if not np.any(workload.ops.kind == Kind.COMM):
        return {}
    try:
        from windtunnel.predict.price.calls import CallBook
        from windtunnel.predict.price.costs import calls_of
    except ImportError:  # from source, without the core
        return {}
    book, priced = CallBook(workload.job), {}
    for row, key in calls_of(workload.ops):
        cost = book.price_of(key)
        priced[row] = (cost.seconds, cost.provenance, cost.relative_error)
    return priced
