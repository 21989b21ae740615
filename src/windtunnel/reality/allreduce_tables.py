"""nccl-tests tables of one node (vTrain's `gpus_N.csv`): all-reduce by size, out of place and in place.

The file names neither its GPU nor its number of ranks in a column: both stand in the path (`…/allreduce_a100/gpus_8.csv`).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.network import collective, flat_group
from windtunnel.profile.imports import gpu_of_path
from windtunnel.reality.architecture import Skipped
from windtunnel.reality.machine import Place, machine
from windtunnel.reality.measurements import Fitted
from windtunnel.reality.report import Score
from windtunnel.workload.ops import Comm

NCCL = ("size(B)", "count", "type", "time(ns)")


def is_allreduce_table(header: Sequence[str]) -> bool:
    """Whether the columns are those of such a table."""
    return all(name in header for name in NCCL)


def allreduce_scores(path: Path, text: str, fitted: Fitted, gpu: str | None = None) -> list[Score]:
    """A score for every call of the file; `SpecError` where the GPU or the number of ranks is not stated."""
    header, *rows = list(csv.reader(text.splitlines()))
    name = gpu or gpu_of_path(path)
    if name is None:
        raise SpecError(str(path), path.name, "a GPU in the path, such as allreduce_a100/gpus_8.csv, or --gpu",
                        "This table has no column for the GPU.")
    family = f"nccl-kernels-{name}"
    return _nccl(path, name, family, header, rows, (family, "time_us") in fitted)


def _nccl(path: Path, gpu: str, family: str, header: Sequence[str], rows: list[list[str]], fitted: bool) -> list[Score]:
    """All-reduce in one node; the columns repeat, first out of place, then in place."""
    found = re.search(r"(\d{1,4})", path.stem)
    if not found or not 2 <= int(found.group(1)) <= 8:
        raise SpecError(str(path), path.name, "a file name with the number of GPUs, such as gpus_8.csv")
    ranks = int(found.group(1))
    cluster = machine(Place(gpu, 8, None, None, None, "none", 8))
    if isinstance(cluster, Skipped):
        raise SpecError(str(path), gpu, cluster.reason)
    places = [index for index, name in enumerate(header) if name == "time(ns)"]
    size = header.index("size(B)")
    group = flat_group(cluster, ranks)
    made: list[Score] = []
    for number, cells in enumerate(rows, start=2):
        label = f"{path.parent.name}:{path.stem}:{number}"
        try:
            length, times = float(cells[size]), [float(cells[index]) / 1e3 for index in places]
            if not (length > 0 and math.isfinite(length) and all(math.isfinite(value) and value > 0 for value in times)):
                raise ValueError(number)
            answer = collective(cluster, Comm.ALL_REDUCE, length, group)
        except (ValueError, IndexError) as error:
            made.append(Score(label, family, "time_us", skipped=f"line {number} does not hold numbers ({error})"))
        except WindtunnelError as error:
            made.append(Score(label, family, "time_us", skipped=str(error)))
        else:
            made += [Score(f"{label}{'+'[:turn]}", family, "time_us", value, 1e6 * answer.seconds, fitted=fitted, complete=True,
                           claimed_pct=100.0 * answer.relative_error, job=f"all_reduce of {length:.0f} B on {ranks} {gpu}",
                           assumptions=(f"{ranks} {gpu}, from the path",)) for turn, value in enumerate(times)]
    return made
