"""aiconfigurator's tables as datasets, by GPU, engine and release, and as calls of collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.base.arrays import Bools
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.machines.kernels.found import checked_head
from windtunnel.formats.machines.kernels.measured.calls import InnerCall
from windtunnel.formats.machines.kernels.measured.cells import Cells, Converted
from windtunnel.formats.machines.kernels.measured.tables import KINDS, SYSTEMS, TableFile, TableKind, data_folder, find_tables
from windtunnel.records import About, Dataset
from windtunnel.records.checks import dataset_of_columns
from windtunnel.records.plausible import contradicting_rows, impossible_rows
from windtunnel.spec import GPU, load_gpu
from windtunnel.spec.loading.files import names
from windtunnel.spec.loading.load import match_gpu

if TYPE_CHECKING:
    import pyarrow as pa

LIBRARIES = {"trtllm": "tensorrt_llm"}
"""Folders of engines whose name is another one in `records`."""

LICENCE = "Apache-2.0"
WANTED = "a table that aiconfigurator publishes"


@dataclass(frozen=True)
class MeasuredEngine:
    """What one release of an engine measured on one GPU: kernels and modules, and calls inside a node."""

    gpu: str
    engine: str
    release: str
    data: Dataset | None
    calls: tuple[InnerCall, ...] = ()

    @property
    def stem(self) -> str:
        """A name for its files."""
        return f"{self.gpu}-{self.engine}-{self.release}"


@dataclass(frozen=True)
class MeasuredTables:
    """All that was read. `ignored`: lines on rows, tables and folders that no dataset can hold; `assumed`: what was filled in."""

    engines: tuple[MeasuredEngine, ...]
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


def read_measured(
    folder: str | Path | None = None,
    *,
    systems: Sequence[str] = (),
    engines: Sequence[str] = (),
    families: Sequence[str] = (),
    release: str = "newest",
    progress: Callable[[float], object] | None = None,
) -> MeasuredTables:
    """The tables in `folder` (left out: those of the installed wheel) as datasets.

    `systems`, `engines`, `families`: names of folders; `release`: newest, all, or one. Raises FileError for a table that is damaged
    or has columns that are not known, SpecError for a cell that is missing or impossible, UnknownName for a name without a folder.
    """
    files = find_tables(data_folder(None if folder is None else Path(folder)), systems, engines, families, release)
    grouped: dict[tuple[str, str, str], list[tuple[TableFile, TableKind]]] = {}
    ignored: list[str] = []
    for file in files:
        if file.name not in KINDS:
            ignored.append(f"{file.where}: no column of a dataset holds such rows")
        elif file.system not in SYSTEMS:
            ignored.append(f"{file.where}: {file.system} is no GPU of the catalogue")
        else:
            grouped.setdefault((SYSTEMS[file.system], file.backend, file.version), []).append((file, KINDS[file.name]))
    made: list[MeasuredEngine] = []
    for count, ((gpu, engine, version), listed) in enumerate(sorted(grouped.items(), key=lambda item: item[0])):
        if progress is not None:
            progress(count / len(grouped))
        one, lines = _read_engine(gpu, engine, version, listed)
        made.append(one)
        ignored += lines
    return MeasuredTables(tuple(made), tuple(dict.fromkeys(ignored)), ASSUMED)


ASSUMED = (
    "all times are of forward kernels replayed in a CUDA graph, with weights that the L2 does not hold, as the project states",
    "DeepEP: the ranks of one node; 8 bits a number in the dispatch of its low-latency kernels, else 16",
)


def read_cells(path: Path, where: str, kind: TableKind) -> Cells:
    """The rows of a table. FileError if it is damaged, lacks a column, or has one that is not known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    checked_head(path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise FileError(where, "Parquet that is cut off or damaged", WANTED, str(error).splitlines()[0][:100]) from error
    missing = sorted(kind.needs - set(table.column_names))
    unknown = sorted(set(table.column_names) - kind.known_columns)
    if missing or unknown:
        got = "; ".join(
            f"{word} {', '.join(found)}" for word, found in (("no column", missing), ("unknown column", unknown)) if found
        )
        hint = "Leave its family out with --family, or update windtunnel: a column may change what a row means."
        raise FileError(where, got, f"columns {', '.join(sorted(kind.needs))}", hint)
    return Cells(table, where)


def _read_engine(
    gpu: str, engine: str, version: str, files: Sequence[tuple[TableFile, TableKind]]
) -> tuple[MeasuredEngine, list[str]]:
    parts: list[Converted] = []
    sources: list[str] = []
    calls: list[InnerCall] = []
    ignored: list[str] = []
    for file, kind in files:
        cells, lines = _of_system(read_cells(file.path, file.where, kind), gpu)
        ignored += lines
        if not len(cells):
            continue
        if kind.calls is not None:
            found, left = kind.calls(cells)
            calls += found
            ignored += left
        elif kind.kernels is not None:
            made = kind.kernels(cells)
            parts += made
            sources += [f"aiconfigurator {file.where}"] * len(made)
    data, lines = dataset_of_cells(gpu, engine, version, parts, f"aiconfigurator {engine} {version}", LICENCE, sources)
    return MeasuredEngine(gpu, engine, version, data, tuple(calls)), [*ignored, *lines]


def dataset_of_cells(
    gpu: str, engine: str, version: str, parts: Sequence[Converted], source: str, licence: str, sources: Sequence[str] = ()
) -> tuple[Dataset | None, list[str]]:
    """The parts as one dataset, and a line for what is left out; None without a row. `sources`: of each part."""
    import pyarrow as pa

    ignored = [line for made in parts for line in made.ignored]
    named = sources or [source] * len(parts)
    tables = [_table(made, where, engine) for made, where in zip(parts, named, strict=True) if made.rows]
    if not tables:
        return None, ignored
    about = About(
        gpu=gpu, device=load_gpu(gpu).names[0] if gpu in names("gpus") and load_gpu(gpu).names else "",
        architecture=load_gpu(gpu).architecture, libraries={LIBRARIES.get(engine, engine): version},
        source=source, licence=licence,
    )  # fmt: skip
    data, lines = _plausible_rows(about, pa.concat_tables(tables), f"{gpu} {engine} {version}")
    return data, [*ignored, *lines]


def _plausible_rows(about: About, table: pa.Table, where: str) -> tuple[Dataset, list[str]]:
    """The dataset without rows that the GPU cannot have measured or that contradict each other, and a line for these by table: they
    ran another shape than the table says, or waited for the host."""
    import pyarrow as pa

    lines: list[str] = []
    checks: tuple[tuple[Callable[[], Bools], str], ...] = (
        (lambda: impossible_rows(about, table), "faster than the GPU, or 100 times slower than it"),
        (lambda: contradicting_rows(table), "of one shape, whose times differ by more than a factor of three"),
    )
    for mark, what in checks:
        bad = mark()
        if bad.any():
            sources = np.array(table["source"].filter(pa.array(bad)).to_pylist(), np.object_)
            for source in sorted(set(sources)):
                count = int((sources == source).sum())
                lines.append(f"{source.removeprefix('aiconfigurator ')}: {count:,} rows {what}")
            table = table.filter(pa.array(~bad))
    return dataset_of_columns(about, table, where), lines


def _of_system(cells: Cells, gpu: str) -> tuple[Cells, list[str]]:
    """The rows that the system's own GPU printed; a line for those of another one."""
    if "device" not in cells.table.column_names or not len(cells):
        return cells, []
    devices = cells.words("device")
    own = {one: _is_gpu(one, gpu) for one in set(devices)}
    same = np.array([own[one] for one in devices], np.bool_)
    others = sorted(set(devices[~same]))
    lines = [f"{cells.where}: {int((devices == one).sum()):,} rows of {one}, another GPU than the folder's" for one in others]
    return (cells if same.all() else cells.take(same)), lines


def _is_gpu(device: str, gpu: str) -> bool:
    try:
        found: GPU = match_gpu(device)
    except SpecError:
        return False
    return found.id == gpu


def _table(made: Converted, source: str, engine: str) -> pa.Table:
    """The columns of a dataset."""
    import pyarrow as pa

    from windtunnel.records.kernel_dataset import arrow_schema

    library = LIBRARIES.get(engine, engine)
    columns: dict[str, Any] = dict(made.columns)
    stated = columns.get("library")
    columns["library"] = [word or library for word in stated] if stated is not None else np.full(made.rows, library, np.object_)
    columns["source"] = np.full(made.rows, source, np.object_)
    schema = arrow_schema()
    arrays = [
        pa.array(columns[one.name], type=one.type, from_pandas=True) if one.name in columns else pa.nulls(made.rows, one.type)
        for one in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
