"""Files of kernel and collective times, whatever their format: datasets, other people's tables, nccl-tests tables -> scores.

Published tables of collective times: nccl-tests tables of one node (vTrain's `gpus_N.csv`) and Vidur's network profiles.

Neither has a column for the GPU, and nccl-tests has none for the number of ranks: both are in the path
(`…/allreduce_a100/gpus_8.csv`). Vidur's rows state the workers per node, but not the links between nodes or inside a small node:
only calls in an 8-GPU node are scored.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.formats.machines.kernels.found import KernelTimes
from windtunnel.formats.machines.kernels.measurements import format_of, gpu_named, gpu_of_path, import_all
from windtunnel.network import collective, flat_group
from windtunnel.reality.jobs.machine import Place, machine
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.rows.table import header_of, read_text
from windtunnel.reality.score.collectives import COMMS
from windtunnel.reality.score.kernel_rows import score_rows
from windtunnel.reality.score.scores import Score
from windtunnel.spec import Cluster
from windtunnel.workload.ops import Comm


def kernel_scores(
    path: Path, fitted: Fitted, gpu: str | None = None, dtype: str | None = None, kernels: str | None = None
) -> list[Score] | None:
    """The scores of a file or folder of kernel times; None for another kind of file.

    `gpu`, `dtype`: what the file does not say. `kernels`: a file of fitted curves in place of the catalogue's.

    Raises what `import_all` raises for a dataset or table that cannot be; single lines that are no measurement are skipped scores.
    """
    kind = "folder" if path.is_dir() else format_of(path)
    if kind == "collectives":
        text = read_text(path)
        if is_collective_table(header_of(text)):
            return collective_scores(path, text, fitted, None if gpu is None else gpu_named(gpu).id)
    if kind in (None, "collectives"):
        return None
    return [score for imported in import_all(path, gpu, dtype=dtype) for score in _scores(path, imported, fitted, kernels)]


def _scores(path: Path, imported: KernelTimes, fitted: Fitted, kernels: str | None) -> list[Score]:
    stem = path.name if path.is_dir() else path.stem
    scores = [replace(score, id=f"{stem}:{score.id}") for score in score_rows(imported.data, fitted, imported.assumed, kernels)]
    family = f"{imported.data.about.gpu} {imported.format}"
    unreadable = [Score(f"{stem}:{where}", family, "time_us", skipped=reason) for where, reason in imported.bad]
    ignored = [Score(f"{stem}:{what}", family, "time_us", skipped=f"not read: {what}") for what in imported.ignored]
    return [*scores, *unreadable, *ignored]


NCCL = ("size(B)", "count", "type", "time(ns)")
VIDUR = ("rank", "num_workers", "size", "collective", "devices_per_node", "max_devices_per_node")
NODE = 8
"""GPUs of the node that these tables are compared with."""


class TimedCall(NamedTuple):
    """A timed call of `ranks` GPUs of one node, or the reason why it cannot be predicted."""

    label: str
    comm: Comm
    bytes: float
    ranks: int
    seconds: float | None
    skipped: str | None = None


def is_collective_table(header: Sequence[str]) -> bool:
    """Whether the columns belong to one of the two formats."""
    return all(name in header for name in NCCL) or all(name in header for name in VIDUR)


def collective_scores(path: Path, text: str, fitted: Fitted, gpu: str | None = None) -> list[Score]:
    """A score for every call of the file. `SpecError` where the GPU or the number of ranks is not stated."""
    header, *rows = list(csv.reader(text.splitlines()))
    name = gpu or gpu_of_path(path)
    if name is None:
        raise SpecError(
            str(path),
            path.name,
            "a GPU in the path, such as allreduce_a100/gpus_8.csv, or --gpu",
            "This table has no column for the GPU.",
        )
    cluster = machine(Place(name, NODE, None, None, None, "none", NODE))
    if isinstance(cluster, Skipped):
        raise SpecError(str(path), name, cluster.reason)
    nccl = NCCL[0] in header
    family = f"{'nccl-kernels' if nccl else 'vidur-collectives'}-{name}"
    calls = _nccl(path, header, rows) if nccl else _vidur(path, header, rows)
    is_fitted = (family, "time_us") in fitted
    return [_score(call, cluster, family, is_fitted, name) for call in calls]


def _score(call: TimedCall, cluster: Cluster, family: str, fitted: bool, gpu: str) -> Score:
    measured = None if call.seconds is None else 1e6 * call.seconds
    if call.skipped is not None:
        return Score(call.label, family, "time_us", measured, skipped=call.skipped, fitted=fitted)
    try:
        answer = collective(cluster, call.comm, call.bytes, flat_group(cluster, call.ranks))
    except WindtunnelError as error:
        return Score(call.label, family, "time_us", measured, skipped=str(error), fitted=fitted)
    job = f"{call.comm.name.lower()} of {call.bytes:.0f} B on {call.ranks} {gpu}"
    return Score(
        call.label,
        family,
        "time_us",
        measured,
        1e6 * answer.seconds,
        fitted=fitted,
        complete=True,
        claimed_pct=100.0 * answer.relative_error,
        job=job,
        assumptions=(f"{call.ranks} {gpu}, from the path",),
    )


def _nccl(path: Path, header: Sequence[str], rows: list[list[str]]) -> Iterator[TimedCall]:
    """All-reduce in one node; the columns repeat, first out of place, then in place."""
    digits = re.search(r"(\d{1,4})", path.stem)
    if not digits or not 2 <= int(digits.group(1)) <= NODE:
        raise SpecError(str(path), path.name, "a file name with the number of GPUs, such as gpus_8.csv")
    ranks = int(digits.group(1))
    places = [index for index, name in enumerate(header) if name == "time(ns)"]
    size = header.index("size(B)")
    for number, cells in enumerate(rows, start=2):
        label = f"{path.parent.name}:{path.stem}:{number}"
        try:
            length, times = _positive(cells[size]), [_positive(cells[index]) / 1e9 for index in places]
        except (ValueError, IndexError) as error:
            yield TimedCall(label, Comm.ALL_REDUCE, 0.0, ranks, None, f"line {number} does not hold numbers ({error})")
        else:
            yield from (
                TimedCall(f"{label}{'+'[:turn]}", Comm.ALL_REDUCE, length, ranks, value) for turn, value in enumerate(times)
            )


def _vidur(path: Path, header: Sequence[str], rows: list[list[str]]) -> Iterator[TimedCall]:
    """Medians in ms, of rank 0 where several ranks are listed."""
    for number, cells in enumerate(rows, start=2):
        label = f"{path.parent.name}:{path.stem}:{number}"
        cell = dict(zip(header, cells, strict=False))
        if cell.get("rank") not in ("0", "0.0"):
            continue
        try:
            ranks, here, most = (int(_positive(cell[name])) for name in (VIDUR[1], VIDUR[4], VIDUR[5]))
            size, seconds = _positive(cell["size"]), _positive(cell[f"time_stats.{cell['collective']}.median"]) / 1e3
        except (ValueError, KeyError) as error:
            yield TimedCall(label, Comm.NONE, 0.0, 0, None, f"line {number} does not hold numbers ({error})")
            continue
        comm = COMMS.get(cell["collective"].replace("_", ""), Comm.NONE)
        reason = (
            f"collective {cell['collective']!r} is not modelled"
            if comm is Comm.NONE
            else "across nodes: the table does not say what joins them"
            if ranks > here
            else f"a node of {most} GPUs: the table does not say what joins them"
            if most != NODE
            else None
        )
        yield TimedCall(label, comm, size, ranks, seconds, reason)


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(text)
    return value
