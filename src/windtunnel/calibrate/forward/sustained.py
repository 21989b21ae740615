"""Products in bf16 of GPUs whose tables were measured under sustained power, with watts: shapes replayed for a second and more.

Such rows are at the power limit, as the long products of a training step are. Layouts of backward are those of the GPU's own file,
or of the one that it is carried from: the tables are forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.calibrate.engines.columns import held_out
from windtunnel.calibrate.engines.fit import GEMM, TILES
from windtunnel.calibrate.engines.solve import solve_curve
from windtunnel.compute.curves import GemmCurve
from windtunnel.compute.device import Device
from windtunnel.compute.engines.seconds import engine_device
from windtunnel.compute.forward_curves import SustainedProducts
from windtunnel.compute.gemm import gemm_bytes, gemm_seconds
from windtunnel.formats.machines.kernels.measured.importer import read_measured
from windtunnel.records import Dataset
from windtunnel.spec import load_gpu
from windtunnel.workload.ops import DTYPES

SYSTEMS = ("b200_sxm", "gb200")
"""Systems whose tables have watts."""

LEAST, MOST = 256, 600
"""Tokens of a row, and rows of an engine that a fit uses."""

SIDE = 512
"""Least width of a product."""

BF16 = DTYPES.index("bf16")


@dataclass(frozen=True)
class ProductRows:
    """Columns over forward products in bf16."""

    m: Floats
    n: Floats
    k: Floats
    seconds: Floats
    held: Bools

    def take(self, rows: Bools) -> ProductRows:
        """The rows of a mask."""
        return ProductRows(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True)
class SustainedFit:
    """The curve of a GPU, and errors of held-out rows by release."""

    gpu: str
    products: SustainedProducts
    errors: dict[str, Floats]


def fit_sustained(folder: str | Path | None, system: str, lent: GemmCurve) -> SustainedFit | None:
    """The products of a system, with the layouts of `lent`; None without rows that have watts."""
    read = read_measured(folder, systems=[system], families=["gemm"], release="all")
    gpu = read.engines[0].gpu
    dev = engine_device(load_gpu(gpu))
    by_release: dict[str, ProductRows] = {}
    for one in read.engines:
        rows = None if one.data is None else rows_of(one.data)
        if rows is not None:
            by_release[f"{one.engine} {one.release}"] = rows
    if not by_release:
        return None
    seen = _join([_thin(rows.take(~rows.held)) for rows in by_release.values()])
    start = GemmCurve(
        fraction=0.85, tiles=TILES[load_gpu(gpu).architecture], tile_cost=8.0, prologue=100.0, wave=0.4, memory=0.85,
        latency=2.5e-6, split=2.5e-6, blend=2.5, throttle=0.1, settle=3e-4,
    )  # fmt: skip
    found: GemmCurve = solve_curve(start, GEMM, lambda curve: predict_products(curve, dev, seen), seen.seconds)
    curve = replace(found, dgrad=lent.dgrad, wgrad=lent.wgrad)
    held = {name: rows.take(rows.held) for name, rows in by_release.items()}
    errors = {name: np.log(predict_products(curve, dev, rows) / rows.seconds) for name, rows in held.items()}
    every = np.concatenate(list(errors.values()))
    source = f"aiconfigurator {', '.join(by_release)}, sustained; layouts of backward: the curves that it is carried from"
    error = float(max(0.08, np.quantile(np.abs(every), 0.68)))
    median = float(f"{100.0 * np.median(np.abs(every)):.3g}")
    return SustainedFit(gpu, SustainedProducts(curve, error, source, median, len(every)), errors)


def rows_of(data: Dataset) -> ProductRows | None:
    """Rows with watts; weights' shapes are held out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    part = data.where(level="kernel", op="gemm", name="linear", dtype="bf16").table
    part = part.filter(pc.is_valid(part["power_w"]))
    if not part.num_rows:
        return None
    columns = (pc.cast(part[name], pa.float64()).to_numpy() for name in ("m", "n", "k", "seconds"))
    m, n, k, seconds = (np.asarray(column, np.float64) for column in columns)
    rows = ProductRows(m, n, k, seconds, held_out(n, k))
    return rows.take((m >= LEAST) & (np.minimum(n, k) >= SIDE))


def predict_products(curve: GemmCurve, dev: Device, rows: ProductRows) -> Floats:
    """[rows] seconds of forward products."""
    one, dtype = np.ones(len(rows.m)), np.full(len(rows.m), BF16, np.int8)
    moved = gemm_bytes(one, rows.m, rows.n, rows.k, dtype, np.zeros(len(rows.m), np.bool_))
    return gemm_seconds(curve, dev, one, rows.m, rows.n, rows.k, dtype, moved, one)


def _thin(rows: ProductRows) -> ProductRows:
    keep = np.zeros(len(rows.m), np.bool_)
    keep[np.random.default_rng(0).permutation(len(rows.m))[:MOST]] = True
    return rows.take(keep)


def _join(parts: Sequence[ProductRows]) -> ProductRows:
    return ProductRows(*(np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])))
