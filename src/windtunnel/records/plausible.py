"""Checks whether times are plausible for a GPU: by the device's name, its data sheet, and the roofline as bounds on both sides.

A kernel faster than the data sheet's peak, or a matrix product a hundred times slower than its roofline, was measured on another
GPU or written in another unit. Bounds are wide: boost clocks exceed the sheet's by a tenth, caches exceed memory bandwidth.

Repeated measurements: when rows are repeats, when they contradict each other, and how repeats are merged into one row.

A dataset may contain repeats (two runs of one sweep); their median is used. Two times that differ by more than `CONTRADICTION` are
not noise, but two GPUs, two units or two environments in one file.

Description of a dataset's row, for messages and labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.records.kernel_dataset import About, Dataset
from windtunnel.records.schema import NAMES
from windtunnel.spec import GPU, load_gpu
from windtunnel.spec.loading.files import names
from windtunnel.spec.loading.load import match_gpu

if TYPE_CHECKING:
    import pyarrow as pa


KEY = (*NAMES[: NAMES.index("accumulate") + 1], "flops", "bytes", "launches")
"""Columns that identify a measurement; rows equal in all of them are repeats."""

CONTRADICTION = 3.0
"""Largest ratio of two times of one measurement."""

JITTER = 50e-6
"""s. Times closer than this never contradict: a short kernel's time is mostly noise."""


def agree(table: pa.Table, path: str) -> None:
    """SpecError naming two usable rows of the same measurement that contradict each other."""
    import pyarrow.compute as pc

    usable = table.filter(pc.equal(table["status"], "ok"))
    key = [name for name in KEY if not _same_throughout(usable[name])] or ["op"]
    groups = usable.group_by(key, use_threads=False).aggregate([("seconds", "min"), ("seconds", "max")])
    if groups.num_rows == usable.num_rows:
        return
    low, high = groups["seconds_min"], groups["seconds_max"]
    apart = pc.and_(pc.greater(high, pc.multiply(low, CONTRADICTION)), pc.greater(pc.subtract(high, low), JITTER))
    at = pc.index(apart, True).as_py()
    if at < 0:
        return
    group = groups.slice(at, 1).to_pylist()[0]
    same = [
        index
        for index, row in enumerate(table.select([*key, "status"]).to_pylist())
        if row["status"] == "ok" and all(row[name] == group[name] for name in key)
    ]
    times = table["seconds"].take(same).to_pylist()
    first, second = sorted((same[times.index(min(times))], same[times.index(max(times))]))
    raise SpecError(
        f"{path}: rows {first} and {tell(table, second)}",
        [min(times), max(times)],
        f"times of one thing within a factor of {CONTRADICTION:g}",
        "Two GPUs, two units or two environments in one file? Write a file for each.",
    )


def contradicting_rows(table: pa.Table) -> Bools:
    """[rows] whether a usable row measured the same thing as another one whose time contradicts its own: what `agree` refuses."""
    import pyarrow.compute as pc

    usable = np.asarray(pc.equal(table["status"], "ok").to_numpy(), np.bool_)
    if not usable.any():
        return usable
    seconds = np.asarray(pc.fill_null(table["seconds"], 0.0).to_numpy(), np.float64)
    group = np.zeros(len(seconds), np.int64)
    for name in KEY:
        if not _same_throughout(table[name]):
            codes = pc.fill_null(table[name].combine_chunks().dictionary_encode().indices, -1).to_numpy().astype(np.int64)
            _, group = np.unique(group * (codes.max() + 2) + codes + 1, return_inverse=True)
    low, high = np.full(group.max() + 1, np.inf), np.zeros(group.max() + 1)
    np.minimum.at(low, group[usable], seconds[usable])
    np.maximum.at(high, group[usable], seconds[usable])
    apart = (high > CONTRADICTION * low) & (high - low > JITTER)
    return np.asarray(usable & apart[group], np.bool_)


def _same_throughout(values: pa.ChunkedArray) -> bool:
    """Whether a column has a single value: grouping by it would only cost time."""
    import pyarrow.compute as pc

    if values.null_count:
        return bool(values.null_count == len(values))
    ends = pc.min_max(values).as_py()
    return bool(ends["min"] == ends["max"])


def merge(rows: Iterable[Mapping[str, Any]], across: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Merges repeats into one row each, in the order of first occurrence: the median time; minimum, maximum, mean and spread over
    all.

    Rows that differ only in the text columns `across` (such as `model`) are also repeats; their words are joined.
    """
    key = [name for name in KEY if name not in across]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row.get("status"), *(row.get(name) for name in key)), []).append(row)
    return [dict(same[0]) if len(same) == 1 else _one(same, across) for same in groups.values()]


def _one(same: Sequence[Mapping[str, Any]], across: Sequence[str]) -> dict[str, Any]:
    merged = dict(same[0])
    times = [row["seconds"] for row in same if row.get("seconds") is not None]
    if times:
        merged["seconds"] = median(times)
        merged["seconds_min"] = min([row["seconds_min"] for row in same if row.get("seconds_min") is not None], default=None)
        merged["seconds_max"] = max([row["seconds_max"] for row in same if row.get("seconds_max") is not None], default=None)
        merged["seconds_mean"], merged["seconds_std"] = _spread(same)
    counts = [row.get("repeats") for row in same]
    merged["repeats"] = sum(counts) if all(counts) else None
    for name in (*across, "source"):
        words = list(dict.fromkeys(str(row[name]) for row in same if row.get(name)))
        merged[name] = ", ".join(words) if words else None
    merged["note"] = f"median of {len(same)} rows" + (f"; {same[0]['note']}" if same[0].get("note") else "")
    return merged


def _spread(same: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Mean and standard deviation of all executions, each row weighing the same: var = mean of (var + (mean - whole mean)^2)."""
    pairs = [(row.get("seconds_mean"), row.get("seconds_std")) for row in same]
    means = [mean for mean, _ in pairs if mean is not None]
    if len(means) < len(same):
        return None, None
    mean = fmean(means)
    deviations = [std for _, std in pairs if std is not None]
    if len(deviations) < len(same):
        return mean, None
    return mean, math.sqrt(fmean(std**2 + (each - mean) ** 2 for each, std in zip(means, deviations, strict=True)))


def tell(table: pa.Table, row: int) -> str:
    """Row `row` (from 0) as `17 (gemm mlp_up_proj, 4096 x 7168 x 8192, fp16 forward)`."""
    return f"{row} ({describe(table.slice(row, 1).to_pylist()[0])})"


def describe(row: Mapping[str, Any]) -> str:
    """`gemm mlp_up_proj, 4096 x 7168 x 8192, fp16 forward`; of a module its shape in words."""
    sizes = " x ".join(str(row[key]) for key in ("m", "n", "k") if row.get(key) is not None)
    if sizes and (row.get("batch") or 1) > 1:
        sizes = f"{row['batch']} of {sizes}"
    words = " ".join(str(row[key]) for key in ("op", "name") if row.get(key))
    return ", ".join(part for part in (words, sizes or row.get("shape") or "", f"{row.get('dtype')} {row.get('phase')}") if part)


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
