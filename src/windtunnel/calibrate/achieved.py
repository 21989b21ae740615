"""Measured collectives of one cluster → the factors of `Cluster.achieved`: latencies and rates, inside a domain and across.

Least squares of log(predicted / measured) with a robust loss. Each factor is drawn to 1 by a weak prior, so that one which no call
determines stays there. Every size is left out in turn, to say how the fit predicts what it did not see.

Measured calls of a cluster: the cluster with the rates and latencies that they achieve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.formats.reading import Content, Reading
from windtunnel.network import flat_group
from windtunnel.network.closed.collective import Setup, prepare
from windtunnel.network.closed.cost import parts_of
from windtunnel.network.closed.fitted import NETS, NODES, scale_constants
from windtunnel.records.measured_calls import CallTable
from windtunnel.spec import load_cluster
from windtunnel.spec.machine import Achieved, Cluster

FACTORS = ("launch", "inside_hop", "inside_rate", "inside_ll_rate", "inside_ll128_rate", "across_hop", "across_rate")
SMALLEST = 256
"""Bytes. The first calls of a sweep hold a warm-up artefact."""

_PRIOR = 0.7  # standard deviation of a factor's logarithm before anything was measured
_NOISE = 0.1  # of a call's logarithm; where the loss turns from square to linear
_LIMIT = math.log(20.0)  # of a factor's logarithm: beyond, the calls are not those of such a machine


@dataclass(frozen=True)
class Errors:
    """Errors of predicted over measured seconds in percent: median and mean of the absolute error, and the mean signed error."""

    calls: int
    median_abs_pct: float
    mean_abs_pct: float
    bias_pct: float

    @classmethod
    def of(cls, logs: npt.NDArray[np.float64]) -> Errors:
        """From log(predicted / measured)."""
        percent = 100.0 * np.expm1(logs)
        return cls(len(logs), float(np.median(np.abs(percent))), float(np.abs(percent).mean()), float(percent.mean()))


@dataclass(frozen=True)
class AchievedFit:
    """A cluster with its factors, the standard error of each factor's logarithm, the errors of all calls before and after, and of
    each size when it was left out. `by_test`: errors before and after of each table. `skipped`: why tables were not used.
    `at_limit`: factors that ended where the fit may go no further, which the calls would have moved on."""

    cluster: Cluster
    errors: dict[str, float]
    before: Errors
    after: Errors
    left_out: Errors
    by_test: dict[str, tuple[Errors, Errors]]
    skipped: tuple[str, ...]
    at_limit: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Call:
    """A measured call with all that does not depend on the factors."""

    setup: Setup
    options: tuple[tuple[str, str], ...]
    bytes: float
    seconds: float
    test: str

    def predict(self, factors: Achieved) -> float:
        """Seconds under the factors."""
        ready = self.setup
        node, net = scale_constants(NODES[ready.links.generation], NETS[ready.links.fabric], factors)
        return min(
            parts_of(ready.comm, self.bytes, ready.group, ready.links, ready.graph, *option, node, net).seconds
            for option in self.options
        )


def fit_achieved(cluster: Cluster, tables: Sequence[CallTable], source: str = "") -> AchievedFit:
    """The factors of a cluster from the calls measured on it. SpecError if no table can be compared with it."""
    plain = cluster.model_copy(update={"achieved": None})
    calls: list[_Call] = []
    skipped: list[str] = []
    for table in tables:
        reason = _unfit(table, plain)
        if reason is None:
            try:
                calls.extend(_calls(table, plain))
            except WindtunnelError as error:
                reason = str(error)
        if reason is not None:
            skipped.append(f"{table.source}: {_name(table)}: {reason}")
    if not calls:
        raise SpecError("FILE", f"{len(tables)} tables", f"calls that the cluster can run ({'; '.join(skipped)})"[:400])
    start = np.zeros(len(FACTORS))
    solution, errors = _fit(calls, start)
    measured = np.log([call.seconds for call in calls])
    before = _logs(calls, start) - measured
    after = _logs(calls, solution) - measured
    sizes = np.array([call.bytes for call in calls])
    left = np.empty(len(calls))
    for size in np.unique(sizes):
        rest = [call for call in calls if call.bytes != size]
        chosen = np.flatnonzero(sizes == size)
        own = _fit(rest, solution)[0] if rest else start
        left[chosen] = _logs([calls[at] for at in chosen], own) - measured[chosen]
    left_out = Errors.of(left)
    values = {name: float(np.exp(value)) for name, value in zip(FACTORS, solution, strict=True)}
    own_factors = Achieved.model_validate({**values, "relative_error": max(0.01, left_out.mean_abs_pct / 100.0), "source": source})
    tests = [call.test for call in calls]
    by_test = {
        name: (Errors.of(before[at]), Errors.of(after[at]))
        for name in dict.fromkeys(tests)
        for at in [np.array([test == name for test in tests])]
    }
    fitted = cluster.model_copy(update={"achieved": own_factors})
    ends = tuple(name for name, value in zip(FACTORS, solution, strict=True) if abs(value) > 0.99 * _LIMIT)
    return AchievedFit(fitted, errors, Errors.of(before), Errors.of(after), left_out, by_test, tuple(skipped), ends)


def _unfit(table: CallTable, cluster: Cluster) -> str | None:
    """Why a table cannot be compared with the cluster."""
    if table.library == "mpi":
        return "MPI's own algorithms, not NCCL's"
    if table.ranks < 2:
        return "the number of ranks is not known" if table.ranks == 0 else "one rank"
    if table.comm is Comm.NONE:
        return "the collective is not known"
    if table.nodes and table.ranks % table.nodes:
        return f"{table.ranks} ranks do not spread evenly over {table.nodes} nodes"
    if table.nodes and table.ranks // table.nodes > cluster.node.gpus:
        return f"{table.ranks // table.nodes} ranks a node; the cluster's nodes have {cluster.node.gpus} GPUs"
    return None


def _calls(table: CallTable, cluster: Cluster) -> list[_Call]:
    machine = cluster.model_copy(update={"gpus": max(cluster.gpus, table.ranks)})
    servers = max(1, machine.node.domain // machine.node.gpus)
    per_domain = min(table.ranks, table.ranks // table.nodes * servers) if table.nodes else None
    ready = prepare(machine, table.comm, flat_group(machine, table.ranks, per_domain))
    calls = []
    for call in table.calls:
        if call.bytes >= SMALLEST and call.seconds > 0 and call.wrong <= 0:
            calls.append(_Call(ready, ready.open or (ready.choose(call.bytes),), call.bytes, call.seconds, _name(table)))
    return calls


def _name(table: CallTable) -> str:
    return f"{table.comm.name.lower()} {table.ranks} ranks {table.nodes or '?'} nodes"


def _logs(calls: Sequence[_Call], x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    factors = Achieved.model_validate({name: float(np.exp(value)) for name, value in zip(FACTORS, x, strict=True)})
    return np.log([call.predict(factors) for call in calls])


def _fit(calls: Sequence[_Call], start: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], dict[str, float]]:
    """Logarithms of the factors, and their standard errors."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped,unused-ignore]

    measured = np.log([call.seconds for call in calls])

    def residuals(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.concatenate([(_logs(calls, x) - measured) / _NOISE, x / _PRIOR])

    solution = least_squares(residuals, start, bounds=(-_LIMIT, _LIMIT), loss="soft_l1", diff_step=1e-3)
    inverse = np.linalg.pinv(solution.jac.T @ solution.jac)
    spread = max(1.0, 2.0 * float(solution.cost) / max(1, len(calls) - len(FACTORS)))
    deviations = np.sqrt(np.maximum(np.diag(inverse), 0.0) * spread)
    return solution.x, {name: float(value) for name, value in zip(FACTORS, deviations, strict=True)}


def cluster_of(reading: Reading, cluster: str, sets: Sequence[str] | None, files: Sequence[str]) -> Reading:
    """The reading of a cluster: its facts are the factors, and the errors before and after. SpecError if no call fits it."""
    from windtunnel.calibrate.achieved import FACTORS, fit_achieved

    source = f"{reading.format}: {', '.join(Path(file).name for file in files[:3])}{' …' if len(files) > 3 else ''}"
    fitted = fit_achieved(load_cluster(cluster, sets or ()), reading.value.tables, source)
    achieved = fitted.cluster.achieved
    facts: dict[str, Any] = {
        "calls": fitted.after.calls,
        "before": _round_errors(asdict(fitted.before)),
        "after": _round_errors(asdict(fitted.after)),
        "left_out": _round_errors(asdict(fitted.left_out)),
        "factors": {name: round(float(getattr(achieved, name)), 4) for name in FACTORS},
        "factor_errors": {name: round(value, 4) for name, value in fitted.errors.items()},
        "at_limit": list(fitted.at_limit),
        "tests": {name: [_round_errors(asdict(one)) for one in pair] for name, pair in fitted.by_test.items()},
    }
    words = (
        f"factors of {fitted.cluster.id} on {fitted.after.calls} calls: mean error {fitted.before.mean_abs_pct:.1f} % before, "
        f"{fitted.after.mean_abs_pct:.1f} % after, {fitted.left_out.mean_abs_pct:.1f} % on sizes left out of the fit"
    )
    warned = [
        f"{name} is {getattr(achieved, name):.2g} times the model's own, as far as the fit may go, and calls depart from it still; "
        "they may be of another machine, library or number of ranks than --cluster says"
        for name in fitted.at_limit
    ]
    return Reading(
        reading.format, Content.CLUSTER, fitted.cluster, facts, (*reading.built, words),
        (*reading.ignored, *fitted.skipped), (*reading.assumed, *warned), reading.broken,
    )  # fmt: skip


def _round_errors(errors: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in errors.items()}
