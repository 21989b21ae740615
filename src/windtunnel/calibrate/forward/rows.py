"""Rows of imported tables as columns: recurrences, convolutions, and pairs of a product in bf16 and in fewer bits."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.calibrate.engines.columns import held_out
from windtunnel.compute.kernel_file import FOLDER
from windtunnel.records import Dataset
from windtunnel.workload.blocks.delta import CHUNK, delta_work
from windtunnel.workload.blocks.mamba import state_space_work

PUBLISHED = FOLDER / "published" / "scans.toml"
KERNELS = {"delta": ("chunk_gated_delta_rule",), "delta_by_channel": ("chunk_kda",)}
"""Recurrence -> kernels of the tables that training frameworks launch too: those of flash-linear-attention."""

CONVOLUTIONS = ("causal_conv1d_fn",)
LARGE = 2e11
"""FLOP from which a product's rate is its own and not its start's."""

SIDE = 1024


@dataclass(frozen=True)
class ScanRows:
    """Columns over calls of a recurrence in one direction: tokens of a sequence and of a chunk, bytes, FLOP, kernels."""

    tokens: Floats
    chunk: Floats
    moved: Floats
    flops: Floats
    launches: Floats
    seconds: Floats
    held: Bools

    def take(self, rows: Bools) -> ScanRows:
        """The rows of a mask."""
        return ScanRows(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True)
class NarrowRows:
    """Linear layers of a recipe beside the product of the same shape in bf16. `read`: numbers that are quantised."""

    seconds: Floats
    wide: Floats
    read: Floats
    held: Bools


def scan_rows(data: Dataset, kind: str) -> ScanRows | None:
    """Prompts of at least a chunk through a recurrence; sequences x heads are held out."""
    part = _context(data, KERNELS[kind])
    if not len(part.table):
        return None
    batch, m, v, k, seconds = (_numbers(part, name) for name in ("batch", "m", "n", "k", "seconds"))
    shapes = zip(m.tolist(), batch.tolist(), k.tolist(), v.tolist(), strict=True)
    work = [delta_work(tokens, int(heads), int(key), int(value), 2.0) for tokens, heads, key, value in shapes]
    moved, flops, launches = (
        np.array([getattr(one, name)[0] for one in work], np.float64) for name in ("moved", "flops", "launches")
    )
    rows = ScanRows(m, np.full(len(m), float(CHUNK)), moved, flops, launches, seconds, held_out(batch, v, k))
    return rows.take(m >= CHUNK)


def convolution_rows(data: Dataset) -> ScanRows | None:
    """Convolutions of whole prompts, large enough that the L2 holds none of it; channels are held out."""
    part = _context(data, CONVOLUTIONS)
    if not len(part.table):
        return None
    batch, m, n, seconds = (_numbers(part, name) for name in ("batch", "m", "n", "seconds"))
    moved, one = 4.0 * batch * m * n, np.ones(len(m))
    rows = ScanRows(m, one, moved, 0.0 * one, one, seconds, held_out(batch, n))
    return rows.take(m >= CHUNK)


def narrow_rows(data: Dataset, form: str) -> NarrowRows | None:
    """Large products; weights' shapes are held out."""
    wide = data.where(level="kernel", op="gemm", name="linear", dtype="bf16")
    part = data.where(level="submodule", op="linear", shape=f"recipe={form}")
    if not len(wide.table) or not len(part.table):
        return None
    known = dict(zip(zip(*(_numbers(wide, name).tolist() for name in "mnk"), strict=True), _numbers(wide, "seconds"), strict=True))
    m, n, k, seconds = (_numbers(part, name) for name in ("m", "n", "k", "seconds"))
    beside = np.array([known.get(shape, np.nan) for shape in zip(m.tolist(), n.tolist(), k.tolist(), strict=True)])
    good = np.isfinite(beside) & (np.minimum(np.minimum(m, n), k) >= SIDE) & (2.0 * m * n * k >= LARGE)
    return NarrowRows(seconds[good], beside[good], (m * k)[good], held_out(n, k)[good])


def published_scans(kind: str, path: Path = PUBLISHED) -> tuple[ScanRows, ScanRows] | None:
    """Forward and backward rows of the catalogue's own measurements; None without any of this kind."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    found = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"] if row[0] == kind]
    if not found:
        return None
    work = [
        state_space_work(one["batch"] * one["tokens"], one["heads"], one["groups"], one["value"], one["key"], one["chunk"], 2.0)
        if kind == "state_space"
        else delta_work(one["batch"] * one["tokens"], one["heads"], one["key"], one["value"], 2.0)
        for one in found
    ]
    tokens, chunk = (np.array([one[name] for one in found], np.float64) for name in ("tokens", "chunk"))
    ways = []
    for way, name in enumerate(("forward_us", "backward_us")):
        moved, flops, launches = (
            np.array([getattr(one, column)[way] for one in work], np.float64) for column in ("moved", "flops", "launches")
        )
        seconds = 1e-6 * np.array([one[name] for one in found], np.float64)
        ways.append(ScanRows(tokens, chunk, moved, flops, launches, seconds, np.zeros(len(found), np.bool_)))
    return ways[0], ways[1]


def _context(data: Dataset, names: tuple[str, ...]) -> Dataset:
    """Rows of scans over prompts by these kernels."""
    import pyarrow as pa

    part = data.where(level="kernel", op="scan")
    wanted = {f"{name} context" for name in names}
    mask = [name in wanted for name in part.table["name"].to_pylist()]
    return Dataset(part.about, part.table.filter(pa.array(mask, pa.bool_())))


def _numbers(data: Dataset, name: str) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.cast(data.table[name], pa.float64()), 0.0).to_numpy(), np.float64)
