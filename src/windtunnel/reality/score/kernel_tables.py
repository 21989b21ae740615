"""Files of kernel and collective times, whatever their format: datasets, other people's tables, nccl-tests tables -> scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from windtunnel.formats.machines.kernels.found import KernelTimes
from windtunnel.formats.machines.kernels.gpu import gpu_named
from windtunnel.formats.machines.kernels.measurements import format_of, import_all
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.rows.table import header_of, read_text
from windtunnel.reality.score.collective_tables import collective_scores, is_collective_table
from windtunnel.reality.score.kernel_rows import score_rows
from windtunnel.reality.score.scores import Score


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
