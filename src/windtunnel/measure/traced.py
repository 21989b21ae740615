"""The kernels of a trace of PyTorch's profiler as rows of a dataset."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, Nothing, SpecError, UnknownName
from windtunnel.profile.layers.trace import kernel_rows
from windtunnel.profile.trace import attribute
from windtunnel.records import About, Dataset, dataset, write
from windtunnel.records.kernel_dataset import arrow_schema
from windtunnel.records.plausible import impossible_rows
from windtunnel.spec import match_gpu

IMPOSSIBLE = "faster than the GPU can be, or 100 times slower, for what its operator's inputs say"
MOST_IMPOSSIBLE = 0.02
"""Share of a trace's rows."""

MOST = 2**31
"""B of a trace that is read."""


def dataset_of_trace(trace: Path, out: Path, gpu: str | None) -> Dataset:
    """See `measure.from_trace`."""
    chrome = read_chrome(trace)
    device = any(event.get("cat") in ("kernel", "Kernel") for event in chrome["traceEvents"] if isinstance(event, dict))
    named = device_name(chrome)
    found = gpu or _gpu_of(named)
    if found is None:
        raise SpecError("--gpu", Nothing(), "the GPU of the trace, which does not say it", "Such as --gpu h100-sxm-80gb.")
    rows = [
        {
            **row, "level": "kernel", "dtype": row["dtype"] or "fp32", "mode": "eager", "library": None,
            "status": "ok", "source": f"a trace of PyTorch's profiler: {trace.name}",
        }
        for row in kernel_rows([attribute(chrome, device)])
    ]  # fmt: skip
    alike: Counter[tuple[Any, ...]] = Counter()
    for row in rows:  # one operator runs several kernels, of which only their names differ
        key = tuple(row.get(name) for name in ("op", "name", "phase", "dtype", "batch", "m", "n", "k"))
        alike[key] += 1
        row["shape"] = "of=trace" if alike[key] == 1 else f"of=trace kernel={alike[key]}"
    if not rows:
        hint = "Record it with profile(activities=[CPU, CUDA], record_shapes=True)."
        raise FileError(str(trace), "no kernel, and no operator of a CPU", "a trace of PyTorch's profiler with either", hint)
    about = About(found, named, source=f"trace {trace.name}", notes="timed under the profiler")
    data = dataset(about, with_impossible_ones_open(about, rows), str(trace))
    write(data, out)
    return data


def with_impossible_ones_open(about: About, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, of which single ones are open that the GPU cannot have taken so little for, such as the last kernel of a call whose
    first ones the trace lacks. More than `MOST_IMPOSSIBLE` of them are another GPU's, and stay as they are, to be refused."""
    import pyarrow as pa

    schema = arrow_schema()
    wrong = impossible_rows(about, pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema))
    if wrong.sum() > MOST_IMPOSSIBLE * len(rows):
        return rows
    return [{**row, "status": "open", "note": IMPOSSIBLE} if bad else row for row, bad in zip(rows, wrong.tolist(), strict=True)]


def _gpu_of(named: str) -> str | None:
    try:
        return match_gpu(named).id if named else None
    except UnknownName:
        return None


def read_chrome(path: Path) -> dict[str, Any]:
    """A trace's JSON, also packed. FileError for another file."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            with gzip.open(path) as stream:
                content = stream.read(MOST)
        table = json.loads(content)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(str(path), str(error)[:80], "a trace that PyTorch's profiler exported") from error
    if not isinstance(table, dict) or not isinstance(table.get("traceEvents"), list):
        raise FileError(str(path), "no traceEvents", "a trace that PyTorch's profiler exported")
    return table


def device_name(chrome: dict[str, Any]) -> str:
    """The GPU's name as the trace has it; empty where it does not say it."""
    devices = chrome.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
    return str(first.get("name", ""))
