"""Rows of kernel datasets as the columns of the kernel models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats, Int8s
from windtunnel.base.dataclasses import dataclass, fields
from windtunnel.compute.device import ELEMENT, RESULT
from windtunnel.records import Dataset
from windtunnel.workload.ops import DTYPES

Words = npt.NDArray[np.object_]

COLUMNS = (
    "op",
    "name",
    "library",
    "phase",
    "dtype",
    "out_dtype",
    "batch",
    "m",
    "n",
    "k",
    "v",
    "causal",
    "window",
    "accumulate",
    "flops",
    "bytes",
    "seconds",
    "note",
    "source",
    "shape",
)
BACKWARD = ("backward", "dgrad", "wgrad")
HOST = "timed from the host"
"""In `note`: the time includes the launch, so short rows say nothing about the kernel."""


@dataclass(frozen=True)
class Samples:
    """Columns over usable kernel rows of one GPU. `work` is FLOP, `moved` B, `size` attention's mean head size of keys and values.

    `group`: rows that a held-out split keeps together: a weight's shape in all of its three products, a width, a length.
    """

    op: Words
    name: Words
    library: Words  # "" if unknown
    phase: Words
    group: Words
    dtype: Int8s
    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    size: Floats
    work: Floats
    moved: Floats
    seconds: Floats
    accumulate: Bools
    host: Bools

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, mask: npt.NDArray[Any]) -> Samples:
        """The rows of a mask or of indices."""
        return Samples(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})

    def of(self, **equal: str) -> Samples:
        """Rows whose text columns equal the given values, such as `of(op="gemm", phase="forward")`."""
        mask = np.ones(len(self), np.bool_)
        for name, value in equal.items():
            mask &= getattr(self, name) == value
        return self.take(mask)

    @property
    def tokens(self) -> Floats:
        """Rows of a product's forward pass: m, or k of a weight gradient."""
        return np.where(self.phase == "wgrad", self.k, self.m)


def samples(data: Sequence[Dataset]) -> Samples:
    """All usable rows at the level of kernels; a row that moves bytes without stating how many is left out."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for each in data:
        table = each.where(level="kernel", status="ok").table
        for name in COLUMNS:
            columns[name] += table[name].to_pylist()

    def number(name: str, null: float) -> Floats:
        return np.array([null if value is None else value for value in columns[name]], np.float64)

    def words(name: str) -> Words:
        return np.array([value or "" for value in columns[name]], np.object_)

    op, phase = words("op"), words("phase")
    dtype = np.array([DTYPES.index(name) for name in columns["dtype"]], np.int8)
    batch, m, n, k = number("batch", 1.0), number("m", 1.0), number("n", 1.0), number("k", 1.0)
    head = np.array([v if v is not None else k or 1.0 for v, k in zip(columns["v"], columns["k"], strict=True)], np.float64)
    accumulate = np.array([bool(value) for value in columns["accumulate"]], np.bool_)
    product = (op == "gemm") | (op == "grouped_gemm")
    attention = op == "attention"
    size = np.where(attention, (k + head) / 2.0, k)
    causal = np.array([bool(value) for value in columns["causal"]], np.bool_)
    window = number("window", np.inf)
    full = np.where(np.isin(phase, BACKWARD), 10.0, 4.0) * batch * m * size
    seen = np.minimum(np.where(causal, np.maximum(n - m / 2.0, 1.0), n), window)
    work = np.where(product, 2.0 * batch * m * n * k, np.where(attention, full * seen, 0.0))
    stated = number("flops", 0.0)
    work = np.where(stated > 0.0, stated, work)
    result = np.array([4.0 if wide in ("fp32", "tf32") else 0.0 for wide in columns["out_dtype"]])
    result = np.where(result > 0.0, result, RESULT[dtype]) * np.where(accumulate, 2.0, 1.0)
    moved = np.where(product, batch * (ELEMENT[dtype] * (m * k + k * n) + result * m * n), 0.0)
    stated = number("bytes", 0.0)
    moved = np.where(stated > 0.0, stated, moved)
    group = np.array([_group(*row) for row in zip(op, words("name"), phase, batch, m, n, k, size, strict=True)], np.object_)
    host = np.array([HOST in (note or "") for note in columns["note"]], np.bool_)
    usable = Samples(
        op,
        words("name"),
        words("library"),
        phase,
        group,
        dtype,
        batch,
        m,
        n,
        k,
        size,
        work,
        moved,
        number("seconds", 0.0),
        accumulate,
        host,
    )
    # of operators inside a layer, the profiler's cost is not that of a kernel that moves bytes
    alone = np.array([shape is None for shape in columns["shape"]], np.bool_)
    return usable.take(product | attention | ((moved > 0.0) & alone))


def _group(op: str, name: str, phase: str, batch: float, m: float, n: float, k: float, size: float) -> str:
    if op in ("gemm", "grouped_gemm"):
        one, two = sorted((n, k) if phase != "wgrad" else (m, n))
        return f"{one:.0f}x{two:.0f}" if op == "gemm" else f"{batch:.0f}x{one:.0f}x{two:.0f}"
    if op == "attention":
        return f"{m:.0f} {batch * size:.0f}"
    return f"{name} {n:.0f}"
