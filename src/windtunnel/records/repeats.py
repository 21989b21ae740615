"""Repeated measurements: when rows are repeats, when they contradict each other, and how repeats are merged into one row.

A dataset may contain repeats (two runs of one sweep); their median is used. Two times that differ by more than `CONTRADICTION` are
not noise, but two GPUs, two units or two environments in one file.

Description of a dataset's row, for messages and labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from windtunnel.base.arrays import Bools
from windtunnel.base.errors import SpecError
from windtunnel.records.schema import NAMES

if TYPE_CHECKING:
    import pyarrow as pa

from typing import TYPE_CHECKING

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
    import numpy as np
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
