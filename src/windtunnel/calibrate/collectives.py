"""Refit of `catalog/calibration/collectives.toml` on measured collectives.

Selection is NCCL's tuner and does not depend on the constants, so the fit is smooth: least squares of log(predicted / measured)
over the logarithms of the free constants, with a robust loss against outliers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.dataclasses import dataclass, fields, replace
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.calibrate.recipes import fits
from windtunnel.calibrate.record import FitRecord, compare_errors
from windtunnel.network import flat_group
from windtunnel.network.closed.collective import Setup, prepare
from windtunnel.network.closed.cost import parts_of
from windtunnel.network.closed.fitted import NETS, NODES, SENDS, NetConstants, NodeConstants, SendConstants
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import CollectiveRow
from windtunnel.reality.score.collectives import call_of
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

_SENDS = "sends"
BANDS = ((0, 65536, "< 64 KiB"), (65536, 2**20, "64 KiB to 1 MiB"), (2**20, math.inf, ">= 1 MiB"))


@dataclass(frozen=True)
class Sample:
    """One measured call: `bytes` in total, `seconds`, and the settings under which it ran."""

    cluster: Cluster
    comm: Comm
    bytes: float
    group: Group
    seconds: float
    family: str = ""
    settings: Mapping[str, str | int] | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Accuracy:
    """Errors of one family and size band in percent: median and mean of the absolute error, and the mean signed error."""

    family: str
    band: str
    count: int
    median_abs_pct: float
    mean_abs_pct: float
    bias_pct: float


Constants = tuple[dict[str, NodeConstants], dict[str, NetConstants], SendConstants]
"""By GPU generation, by fabric, and of messages on every GPU (named `sends/...`)."""


def refit(
    samples: Sequence[Sample],
    nodes: Mapping[str, NodeConstants] = NODES,
    nets: Mapping[str, NetConstants] = NETS,
    sends: SendConstants = SENDS,
) -> Constants:
    """All stages of `catalog/calibration/fits.toml` on clean samples.

    Each family and size band has the same weight, those from 1 MiB on two and a half times as much.
    """
    count: dict[tuple[str, bool, str], int] = {}
    keys = [(s.family, s.group.nodes > 1, _band(s.bytes)) for s in samples]
    for key in keys:
        count[key] = count.get(key, 0) + 1
    weighed = [replace(s, weight=(20.0 if s.bytes >= 2**20 else 8.0) / count[key]) for s, key in zip(samples, keys, strict=True)]
    constants = dict(nodes), dict(nets), sends
    for stage in fits().collectives:
        chosen = [s for s in weighed if s.family in stage.families and (s.group.nodes > 1) == stage.between_domains]
        if chosen:
            constants = fit(chosen, stage.constants, *constants)
    return constants


def samples_of(rows: Sequence[CollectiveRow]) -> list[Sample]:
    """Calls of the families that the stages name; rows that do not allow a fair comparison are left out."""
    fitted = {family for stage in fits().collectives for family in stage.families}
    samples = []
    for row in rows:
        call = call_of(row) if row.family in fitted else Skipped("not fitted")
        if isinstance(call, Skipped) or not row.time_us:
            continue
        group = flat_group(call.cluster, call.gpus, call.per_domain)
        samples.append(Sample(call.cluster, call.comm, call.bytes, group, 1e-6 * row.time_us, row.family))
    return samples


def fit_record(rows: Sequence[CollectiveRow]) -> FitRecord:
    """All stages on the rows of a table: stored and refitted constants, and errors before and after."""
    samples = samples_of(rows)
    nodes, nets, sends = refit(samples)
    families = {sample.family for sample in samples}
    names = [name for stage in fits().collectives if families & set(stage.families) for name in stage.constants]
    before: dict[str, Any] = {**NODES, **NETS, _SENDS: SENDS}
    after: dict[str, Any] = {**nodes, **nets, _SENDS: sends}
    return FitRecord(
        "collectives",
        "windtunnel fit collectives",
        {name: (_get(before, name), _get(after, name)) for name in dict.fromkeys(names)},
        compare_errors(_errors(samples, before), _errors(samples, after)),
    )


def _errors(samples: Sequence[Sample], tables: Mapping[str, Any]) -> dict[str, list[float]]:
    """Signed errors in percent by family under given constants."""
    errors: dict[str, list[float]] = {}
    for sample in samples:
        predicted = _Call.of(sample).predict(tables)
        errors.setdefault(sample.family, []).append(100.0 * (predicted / sample.seconds - 1.0))
    return errors


def _band(size: float) -> str:
    return next(name for low, high, name in BANDS if low <= size < high)


def fit(
    samples: Sequence[Sample],
    free: Sequence[str],
    nodes: Mapping[str, NodeConstants] = NODES,
    nets: Mapping[str, NetConstants] = NETS,
    sends: SendConstants = SENDS,
) -> Constants:
    """The constants with the `free` ones refitted: a name is `hopper/launch`, `infiniband/tree_hop.1` (part 1 of a triple),
    `sends/peer` or `ampere+hopper/exchange` (one value for both).

    Raises SpecError without samples or on a name that no table has.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped,unused-ignore]

    if not samples:
        raise SpecError("samples", 0, "at least one measured call")
    tables: dict[str, Any] = {**nodes, **nets, _SENDS: sends}
    for name in free:
        if not set(_tables_of(name)) <= set(tables):
            raise UnknownName("free", name, sorted(tables))
    start = np.log([_get(tables, name) for name in free])
    weights = np.sqrt([s.weight for s in samples])
    calls = [_Call.of(s) for s in samples]

    def residuals(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        moved = _put(tables, free, np.exp(x))
        return np.array([math.log(call.predict(moved) / call.sample.seconds) for call in calls]) * weights

    limit = math.log(12.0)
    upper = np.array([min(limit, -v) if _is_fraction(name) else limit for v, name in zip(start, free, strict=True)])
    solution = least_squares(
        residuals, start, bounds=(start - limit, start + np.maximum(upper, 1e-6)), loss="soft_l1", f_scale=0.1, diff_step=1e-3
    )
    best = _put(tables, free, np.exp(solution.x))
    return {name: best[name] for name in nodes}, {name: best[name] for name in nets}, best[_SENDS]


def accuracy(samples: Sequence[Sample]) -> list[Accuracy]:
    """Errors of the stored constants by family and size band."""
    errors_by_band: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        band = _band(sample.bytes)
        ready = prepare(sample.cluster, sample.comm, sample.group, parse_settings(sample.settings))
        predicted = ready.seconds(sample.bytes)[0].seconds
        errors_by_band.setdefault((sample.family, band), []).append(100.0 * (predicted / sample.seconds - 1.0))
    rows = []
    for (family, band), errors in sorted(errors_by_band.items()):
        size = np.abs(errors)
        rows.append(Accuracy(family, band, len(errors), float(np.median(size)), float(size.mean()), float(np.mean(errors))))
    return rows


@dataclass(frozen=True)
class _Call:
    """A sample with all inputs that do not depend on the constants."""

    sample: Sample
    ready: Setup
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, sample: Sample) -> _Call:
        ready = prepare(sample.cluster, sample.comm, sample.group, parse_settings(sample.settings))
        return cls(sample, ready, ready.open or (ready.choose(sample.bytes),))

    def predict(self, tables: Mapping[str, Any]) -> float:
        links, s = self.ready.links, self.sample
        node, net = tables[links.generation], tables[links.fabric]
        return min(
            parts_of(s.comm, s.bytes, s.group, links, self.ready.graph, algorithm, protocol, node, net, tables[_SENDS]).seconds
            for algorithm, protocol in self.options
        )


def _is_fraction(name: str) -> bool:
    """Whether the constant is a fraction of a link's rate or of a step, which cannot exceed 1."""
    return name == f"{_SENDS}/fill" or name.split("/")[1].split(".")[0] in ("ring", "tree", "nvls", "p2p", "exchange")


def _tables_of(name: str) -> list[str]:
    """Tables that share the constant."""
    return name.partition("/")[0].split("+")


def _get(tables: Mapping[str, Any], name: str) -> float:
    table, rest = _tables_of(name)[0], name.partition("/")[2]
    field, _, part = rest.partition(".")
    if not hasattr(tables[table], field):
        raise UnknownName("free", name, [f.name for f in fields(tables[table])])
    value = getattr(tables[table], field)
    return float(value[int(part)] if part else value)


def _put(tables: Mapping[str, Any], names: Sequence[str], values: npt.NDArray[np.float64]) -> dict[str, Any]:
    moved = dict(tables)
    for name, value in zip(names, values, strict=True):
        field, _, part = name.partition("/")[2].partition(".")
        for table in _tables_of(name):
            new: Any = float(value)
            if part:
                triple = list(getattr(moved[table], field))
                triple[int(part)] = new
                new = tuple(triple)
            moved[table] = replace(moved[table], **{field: new})
    return moved
