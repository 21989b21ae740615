"""Checks whether times are plausible for a GPU: by the device's name, its data sheet, and the roofline as bounds on both sides.

A kernel faster than the data sheet's peak, or a matrix product a hundred times slower than its roofline, was measured on another
GPU or written in another unit. Bounds are wide: boost clocks exceed the sheet's by a tenth, caches exceed memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.records.kernel_dataset import About, Dataset
from windtunnel.records.repeats import tell
from windtunnel.spec import GPU, load_gpu
from windtunnel.spec.loading.catalog import names
from windtunnel.spec.loading.load import match_gpu

if TYPE_CHECKING:
    import pyarrow as pa


FASTER = 1.2
"""Over the data sheet's rate: boost clocks (8 % on H100), figures of the sheet rounded down."""

OWN = 3.0
"""Factor by which bounds are wider if they come from the dataset's own `datasheet`, which may be measured on a busy machine."""

SLOWER, LAUNCH = 100.0, 20e-6
"""A product of matrices takes less than SLOWER times (roofline + LAUNCH s for each launch); milliseconds as seconds are 1000."""

TICK = 1e-6
"""s. Resolution of the coarsest timers in published tables."""

CACHED = 4.0
"""A kernel that moves less than this many times the L2 may be faster than memory."""

LARGE, ENOUGH, REACHED = 1e-4, 20, 0.4
"""Of ENOUGH products in half precision that last LARGE s or more at peak, the best reaches this share of the catalogue's peak: the
best measured matmul is 54 % (MI300X) to 87 % (A100) of it."""

PRODUCTS = ("gemm", "grouped_gemm", "attention")

LARGEST_RATE, LARGEST_BANDWIDTH = 1e17, 1e14
"""FLOP/s and B/s that no single accelerator achieves: the bounds for an unknown GPU."""


@dataclass(frozen=True)
class Limits:
    """Limits of a GPU: FLOP/s by number format, B/s, B of L2; `known` is false if only `LARGEST_RATE` bounds it."""

    peak: Mapping[str, float]
    bandwidth: float
    l2: float
    slack: float = 1.0
    known: bool = True


def plausible(data: Dataset, path: str) -> None:
    """SpecError if the dataset cannot be of the GPU that it names; see the module."""
    about = data.about
    gpu = load_gpu(about.gpu) if about.gpu in names("gpus") else None
    if gpu is not None:
        _same_device(about, gpu, path)
        _same_sheet(about, gpu, path)
    _rates(data, _sheet(about, gpu), path)


def _same_device(about: About, gpu: GPU, path: str) -> None:
    """Compares the driver's name with those in the catalogue for this GPU; a dataset without a device name passes."""
    printed = " ".join(about.device.split()).casefold()
    if not printed or printed in {text.casefold() for text in (gpu.id, gpu.name, *gpu.names)}:
        return
    try:
        other = match_gpu(about.device).id
    except UnknownName:
        raise SpecError(
            f"{path}: about.device",
            about.device,
            f"{', '.join(gpu.names)} under the name {gpu.id}",
            "Another GPU needs another name; another spelling belongs into `names` of the catalogue's entry.",
        ) from None
    raise SpecError(
        f"{path}: about.gpu", gpu.id, f"{other}, which is the GPU that prints {about.device!r}", f"Write it as --gpu {other}."
    )


def _same_sheet(about: About, gpu: GPU, path: str) -> None:
    stated = about.datasheet
    facts = {
        "memory_bandwidth": (gpu.memory_bandwidth, 0.25),
        "memory": (gpu.memory, 0.1),
        "sms": (gpu.sms, 0.0),
        **{f"peak.{name}": (rate, 0.25) for name, rate in gpu.peak.items()},
    }
    for key, (value, slack) in facts.items():
        if key in stated and value is not None and abs(stated[key] / float(value) - 1.0) > slack:
            raise SpecError(
                f"{path}: about.datasheet {key}",
                stated[key],
                f"about {float(value):.4g}, as {gpu.id} has",
                "This is a profile of another GPU; give it its own name.",
            )


def _sheet(about: About, gpu: GPU | None) -> Limits:
    if gpu is not None:
        return Limits(gpu.peak, gpu.memory_bandwidth, float(gpu.l2 or 256 * 2**20))
    stated = about.datasheet
    peak = {key.removeprefix("peak."): value for key, value in stated.items() if key.startswith("peak.") and value > 0}
    if peak and stated.get("memory_bandwidth", 0.0) > 0:
        return Limits(peak, stated["memory_bandwidth"], stated.get("l2", 256 * 2**20), slack=OWN)
    return Limits({"bf16": LARGEST_RATE}, LARGEST_BANDWIDTH, 256 * 2**20, known=False)


@dataclass(frozen=True)
class _RateColumns:
    """Columns over the rows of a dataset: s, FLOP, FLOP/s, B; `least` s by FLOP and by B; `product` marks usable products."""

    seconds: Floats
    flops: Floats
    peak: Floats
    moved: Floats
    launches: Floats
    dtypes: npt.NDArray[np.str_]
    usable: Bools
    product: Bools
    least_by_work: Floats
    least_by_bytes: Floats

    @property
    def fast_by_work(self) -> Bools:
        """Rows faster than the sheet's FLOP/s."""
        return np.asarray(self.usable & (self.seconds + TICK < self.least_by_work), np.bool_)

    @property
    def fast_by_bytes(self) -> Bools:
        """Rows faster than the sheet's memory."""
        return np.asarray(self.usable & (self.seconds + TICK < self.least_by_bytes), np.bool_)

    def most(self, sheet: Limits) -> Floats:
        """s. What a product takes at most."""
        roofline = np.maximum(self.flops / self.peak, self.moved / sheet.bandwidth)
        return np.asarray(SLOWER * sheet.slack * (roofline + LAUNCH * np.maximum(self.launches, 1.0)), np.float64)

    def mark_slow(self, sheet: Limits) -> Bools:
        """Products in a format that the sheet states which take longer than that."""
        stated = np.array([name in sheet.peak for name in self.dtypes])
        slow = self.product & stated & (self.flops > 0) & (self.seconds > self.most(sheet))
        return np.asarray(slow & sheet.known, np.bool_)


def _rate_columns(table: pa.Table, sheet: Limits) -> _RateColumns:
    seconds, flops, moved, launches = (_column(table, name) for name in ("seconds", "flops", "bytes", "launches"))
    usable = _is(table, "status", ("ok",)) & (seconds > 0)
    product = usable & _is(table, "level", ("kernel",)) & _is(table, "op", PRODUCTS)
    products = 2.0 * _column(table, "batch", 1.0) * _column(table, "m") * _column(table, "n") * _column(table, "k")
    flops = np.where((flops == 0) & _is(table, "op", ("gemm", "grouped_gemm")), products, flops)
    dtypes = np.array(table["dtype"].to_pylist())
    best = max(sheet.peak.values())
    # A format without a rate in the sheet is computed in another one: only the largest rate bounds it, and only from above.
    own = {name: sheet.peak.get(name, best) for name in set(dtypes.tolist())}
    peak = np.array([own[name] for name in dtypes])
    spilled = np.where(moved > CACHED * sheet.l2, moved, 0.0)
    faster = FASTER * sheet.slack
    return _RateColumns(
        seconds, flops, peak, moved, launches, dtypes, usable, product, flops / peak / faster, spilled / sheet.bandwidth / faster
    )


def impossible_rows(about: About, table: pa.Table) -> Bools:
    """[rows] whether the GPU cannot have taken so little, or so long, for the row: what `plausible` refuses a dataset for."""
    if not len(table):
        return np.zeros(0, np.bool_)
    sheet = _sheet(about, load_gpu(about.gpu) if about.gpu in names("gpus") else None)
    columns = _rate_columns(table, sheet)
    return np.asarray(columns.fast_by_work | columns.fast_by_bytes | columns.mark_slow(sheet), np.bool_)


def _rates(data: Dataset, sheet: Limits, path: str) -> None:
    table = data.table
    if not len(table):
        return
    x = _rate_columns(table, sheet)
    ways = (
        (x.fast_by_work, x.least_by_work, x.peak, "FLOP/s"),
        (x.fast_by_bytes, x.least_by_bytes, np.full(len(table), sheet.bandwidth), "B/s"),
    )
    for fast, least, rate, unit in ways:
        if fast.any():
            row = int(np.argmax(fast))
            what = f" in {x.dtypes[row]}" if unit == "FLOP/s" else " from memory"
            who = data.about.gpu if sheet.known else "any GPU"
            raise SpecError(
                f"{path}: seconds of row {tell(table, row)}",
                float(x.seconds[row]),
                f"at least {least[row]:.3g}: {rate[row]:.3g} {unit}{what} is the most that {who} does",
                "Another GPU's times under this name, another number format (tf32?), or times that are not in seconds.",
            )
    if sheet.known and sheet.slack == 1.0:
        large = x.product & np.isin(x.dtypes, ("bf16", "fp16")) & (x.flops / x.peak >= LARGE)
        share = np.where(large, x.flops / np.where(x.seconds > 0, x.seconds, 1.0) / x.peak, 0.0)
        if large.sum() >= ENOUGH and share.max() < REACHED:
            row = int(np.argmax(share))
            raise SpecError(
                f"{path}: {int(large.sum()):,} large products",
                f"at best {100 * share[row]:.0f} % of peak, row {tell(table, row)}",
                f"at least {100 * REACHED:g} % of the {x.peak[row]:.3g} FLOP/s of {data.about.gpu}",
                "Times of a smaller GPU under this name? Each GPU has its own name.",
            )
    slow = x.mark_slow(sheet)
    if slow.any():
        row = int(np.argmax(slow))
        raise SpecError(
            f"{path}: seconds of row {tell(table, row)}",
            float(x.seconds[row]),
            f"at most {x.most(sheet)[row]:.3g}: {SLOWER * sheet.slack:g} times what {data.about.gpu} needs",
            "Milliseconds or microseconds where seconds belong? `windtunnel profile import` reads time_ms and time_us.",
        )


def _column(table: pa.Table, name: str, null: float = 0.0) -> Floats:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(table[name], null).to_numpy(), dtype=np.float64)


def _is(table: pa.Table, name: str, words: tuple[str, ...]) -> Bools:
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.asarray(pc.is_in(table[name], value_set=pa.array(words)).to_numpy(), dtype=np.bool_)
