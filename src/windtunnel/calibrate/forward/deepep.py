"""DeepEP's dispatch and combine inside a node, from aiconfigurator's tables; `network/closed/cost.py` has the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.calibrate.engines.columns import held_out
from windtunnel.calibrate.engines.solve import Bounds, solve_curve
from windtunnel.formats.machines.kernels.measured.calls import NODES
from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine
from windtunnel.network.closed.cost import SCALED, DispatchCurve, dispatch_seconds
from windtunnel.spec import load_cluster
from windtunnel.workload.blocks.routing import distinct

LEAST = 1024
"""Tokens of a rank from which rows are fitted: training's micro batches."""

FLOOR = 0.05
"""Least relative error that is claimed; assumed."""

LINKS = {"h100-sxm-80gb": "h100-ib", "b200-sxm-180gb": "b200-ib", "b300-sxm": "b300-ib", "gb200-nvl72": "gb200-nvl72"}
"""GPU -> a cluster of the catalogue whose scale-up link it has."""

BOUNDS: Bounds = {
    "start": (5e-6, 3e-5, 2e-4), "rate": (2e9, 2.5e10, 2e11), "scan": (1e-9, 5e-7, 5e-6), "wire": (0.3, 0.8, 1.2),
    "blend": (1.0, 2.0, 8.0),
}  # fmt: skip


@dataclass(frozen=True)
class DispatchRows:
    """Columns over calls: SMs, tokens of a rank, bytes of their copies, bytes to other GPUs."""

    sms: Floats
    tokens: Floats
    moved: Floats
    out: Floats
    seconds: Floats
    held: Bools

    def take(self, rows: Bools) -> DispatchRows:
        """The rows of a mask."""
        return DispatchRows(*(column[rows] for column in vars(self).values()))


def dispatch_rows(one: MeasuredEngine, way: str) -> DispatchRows | None:
    """Calls of the normal kernels with LEAST tokens and more; widths, top-k and experts are held out."""
    ranks, found = float(NODES.get(one.gpu, (8, 8))[0]), []
    for call in one.calls:
        words = call.what.split(" ")
        if words[:3] != ["DeepEP", "normal", way]:
            continue
        shape = {name: float(value) for name, value in (word.split("=") for word in words[3:])}
        tokens = call.bytes / (shape["hidden"] * shape["top_k"] * (1.0 if call.dtype == "fp8" else 2.0))
        copies = distinct(ranks, shape["experts"], int(shape["top_k"]))
        moved = tokens * copies * shape["hidden"] * (SCALED if call.dtype == "fp8" else 2.0)
        out = moved * (ranks - 1.0) / ranks
        found.append((shape["sms"], tokens, moved, out, call.seconds, shape["hidden"], shape["top_k"], shape["experts"]))
    if not found:
        return None
    columns = [np.array(column, np.float64) for column in zip(*found, strict=True)]
    rows = DispatchRows(columns[0], columns[1], columns[2], columns[3], columns[4], held_out(*columns[5:]))
    return rows.take(rows.tokens >= LEAST)


def fit_dispatch(engines: Sequence[MeasuredEngine]) -> tuple[Mapping[str, DispatchCurve], dict[str, Floats]]:
    """By way (dispatch, combine): constants of a GPU, and errors ln(predicted / measured) of rows that no fit saw."""
    curves: dict[str, DispatchCurve] = {}
    errors: dict[str, Floats] = {}
    for one in engines:
        for way in ("dispatch", "combine"):
            rows = dispatch_rows(one, way) if way not in curves and one.gpu in LINKS else None
            if rows is None:
                continue
            link = link_of(one.gpu)
            start = DispatchCurve(3e-5, 2.5e10, 5e-7, 0.8, 2.0)
            seen, held = rows.take(~rows.held), rows.take(rows.held)
            predict = partial(predict_dispatch, rows=seen, link=link)
            curve: DispatchCurve = solve_curve(start, BOUNDS, predict, seen.seconds)
            off = np.log(predict_dispatch(curve, held, link) / held.seconds)
            size = np.abs(off)
            curves[way] = replace(
                curve,
                error=float(max(FLOOR, np.quantile(size, 0.68))),
                held_out=float(100.0 * np.median(size)),
                rows=len(off),
                source=f"aiconfigurator {one.engine} {one.release}",
            )
            errors[way] = off
    return curves, errors


def link_of(gpu: str) -> float:
    """B/s of the scale-up link of a GPU each way."""
    return float(load_cluster(LINKS[gpu]).node.scale_up.bandwidth)


def predict_dispatch(curve: DispatchCurve, rows: DispatchRows, link: float) -> Floats:
    """[rows] seconds."""
    return dispatch_seconds(curve, rows.sms, rows.tokens, rows.moved, rows.out, link)
