"""Imports published measurements of one GPU into a dataset, and reports what was ignored and assumed.

A format is recognised by its content (columns, keys, first line), never by its path. The GPU is stated by the caller or the files;
a word of the path is used only if neither states it, and is listed as assumed.

The GPU of a file: stated by the user or by the file, or, as an assumption, a word of its path.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.formats.importers import IMPORTERS, module_of
from windtunnel.formats.machines.kernels.found import Found, KernelTimes, checked_head, is_dataset, label
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.records import About, dataset, read_any
from windtunnel.records.schema import DTYPES
from windtunnel.spec import GPU, load_gpu
from windtunnel.spec.loading.files import names
from windtunnel.spec.loading.load import match_gpu

COLLECTIVES = (("size(B)", "time(ns)"), ("collective", "devices_per_node", "num_workers", "rank"))
"""Columns of tables that time collectives."""
FORMATS = ("vidur", "simumax", "llmcompass", "table")
"""What `--format` takes."""


def _modules() -> dict[str, Any]:
    """Format -> the module of its reader, in the registry's order."""
    return {module.FORMAT: module for importer in IMPORTERS if importer.reads == "kernels" for module in [module_of(importer)]}


def format_of(path: Path) -> str | None:
    """The format of one file: one of `FORMATS`, `dataset`, `collectives`, or None. FileError if it cannot be read."""
    head = checked_head(path)
    if is_dataset(head):
        return "dataset"
    if any(set(columns) <= set(head.columns) for columns in COLLECTIVES):
        return "collectives"
    return next((name for name, module in _modules().items() if module.recognises(head)), None)


def read_dataset(form: str, files: Sequence[Path], context: Context) -> Reading:
    """What the importers of kernel tables return: a dataset of the GPU of the context, or of the one that the file names."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} tables of kernels", "one file, or `windtunnel profile import FOLDER`")
    found = import_measurements(files[0], context.gpu, form, context.dtype)
    data = found.data
    facts = {"gpu": data.about.gpu, "rows": len(data)}
    return Reading(f"kernel times ({found.format})", Content.DATASET, data, facts, (), found.ignored, found.assumed)


def import_measurements(
    path: str | Path, gpu: str | None = None, format: str | None = None, dtype: str | None = None
) -> KernelTimes:
    """The measurements of one GPU in a file or in all files below a folder, as a checked dataset.

    `gpu`: catalogue id, driver's name, or a TOML file of a GPU. Raises FileError for files that cannot be read or are not tables of
    kernels, SpecError for invalid lines, for a GPU that is unknown or differs from the files', and for all that `records.check`
    refuses.
    """
    imported = import_all(path, gpu, format, dtype)
    if len(imported) > 1:
        gpus = ", ".join(each.data.about.gpu for each in imported)
        raise SpecError(
            str(path),
            f"rows of {len(imported)} GPUs: {gpus}",
            "one GPU in a dataset",
            f"Choose: --gpu {imported[0].data.about.gpu}.",
        )
    only = imported[0]
    if only.bad:
        where, reason = only.bad[0]
        more = f" and {len(only.bad) - 1} more lines" if len(only.bad) > 1 else ""
        raise SpecError(where, reason + more, "a measurement", "Correct or remove the line; nothing was imported.")
    return only


def import_all(path: str | Path, gpu: str | None = None, format: str | None = None, dtype: str | None = None) -> list[KernelTimes]:
    """The same for a table with rows of several GPUs, one import each; invalid lines are listed in `bad`."""
    if format is not None and format not in FORMATS:
        raise UnknownName("--format", format, FORMATS)
    if dtype is not None and dtype not in DTYPES:
        raise UnknownName("--dtype", dtype, DTYPES)
    stated = gpu_named(gpu) if gpu is not None else None
    files, kind, ignored = _files(Path(path), format)
    if kind == "dataset":
        data = read_any(files[0])
        if stated is not None and stated.id != data.about.gpu:
            raise SpecError("--gpu", stated.id, f"{data.about.gpu}, which the dataset states")
        return [KernelTimes(kind, data, ignored)]
    parts = _read(kind, files, dtype)
    parts, others = _rows_of_gpu(parts, stated)
    return [_import_table(part, kind, stated, Path(path), files, (*part.ignored, *ignored, *others)) for part in parts]


def _read(kind: str, files: list[Path], dtype: str | None) -> list[Found]:
    """The result of the format's reader; damage beyond a file's head is also a FileError."""
    import pyarrow as pa

    try:
        tables = _modules()[kind].read_rows(files, dtype)
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise FileError(", ".join(map(str, files[:3])), str(error).splitlines()[0][:100], _modules()[kind].WHAT) from error
    return tables if isinstance(tables, list) else [tables]


def _files(path: Path, format: str | None) -> tuple[list[Path], str, tuple[str, ...]]:
    """The files to read, their common format, and the files of a folder that are left out."""
    if not path.is_dir():
        kind = format or format_of(path)
        if kind == "collectives":
            raise FileError(
                str(path),
                "times of a collective, not of kernels",
                "a table of kernels",
                f"`windtunnel validate {path}` sets such a table beside the network model.",
            )
        if kind is None:
            raise FileError(
                str(path),
                "a file of no known format",
                "; ".join(module.WHAT for module in _modules().values()),
                "docs/profile.md says which columns a table needs.",
            )
        checked_head(path)
        return [path], kind, ()
    every = sorted(file for file in path.rglob("*") if file.suffix.lower() in (".csv", ".json", ".parquet") and file.is_file())
    kinds = {file: format_of(file) for file in every}
    formats = sorted({kind for kind in kinds.values() if kind is not None and kind != "collectives"})
    if format is not None:
        formats = [format] if format in formats else []
    if not formats:
        collectives = "collectives" in kinds.values()
        what = "only tables of collectives, which `windtunnel validate` reads" if collectives else "no such file below it"
        raise FileError(str(path), what, format or "; ".join(module.WHAT for module in _modules().values()))
    if len(formats) > 1 or formats == ["dataset"] and list(kinds.values()).count("dataset") > 1:
        raise SpecError(
            str(path),
            f"files of {', '.join(formats)}",
            "one format, and a dataset alone",
            "Give the file, or --format " + "|".join(FORMATS) + ".",
        )
    chosen = formats[0]
    unused = tuple(f"{file.relative_to(path)}: {kind or 'no known format'}" for file, kind in kinds.items() if kind != chosen)
    files = [file for file in every if kinds[file] == chosen]
    gpus = sorted({gpu for file in files if (gpu := gpu_of_path(file.relative_to(path))) is not None})
    if len(gpus) > 1:
        raise SpecError(str(path), f"files of {', '.join(gpus)}, by their paths", "files of one GPU", "Import each GPU's folder.")
    return files, chosen, unused


def _rows_of_gpu(parts: list[Found], stated: GPU | None) -> tuple[list[Found], tuple[str, ...]]:
    """For a table with a column `gpu`, the rows of the GPU that the caller states."""
    if stated is None or all(part.gpu is None for part in parts):
        return parts, ()
    named = [(part, gpu_named(part.gpu, "column gpu").id if part.gpu else None) for part in parts]
    matching = [part for part, name in named if name == stated.id]
    if not matching:
        raise SpecError("--gpu", stated.id, ", ".join(str(name) for _, name in named) + ", which the column gpu names")
    return matching, tuple(f"{len(part.rows):,} rows of {name or 'no named GPU'}" for part, name in named if name != stated.id)


def _import_table(
    table: Found, kind: str, stated: GPU | None, path: Path, files: list[Path], ignored: tuple[str, ...]
) -> KernelTimes:
    assumed = list(table.assumed)
    hints = [(table.called, "what the file calls its system"), *((str(name), "a word of the path") for name in (path, *files))]
    guess, why = next(((name, why) for text, why in hints if (name := gpu_of_path(Path(text))) is not None), (None, ""))
    gpu = stated
    if gpu is None and table.gpu is not None:
        gpu = gpu_named(table.gpu, f"{path}: column gpu")
    elif gpu is not None and guess is not None and guess.split("-")[0] != gpu.id.split("-")[0]:
        assumed.append(f"GPU {gpu.id}: as stated, though {guess} is {why}")
    if gpu is None:
        if guess is None:
            raise SpecError(
                str(path), "nothing that names the GPU", "a GPU of `windtunnel catalog gpus`", "State it: --gpu h100-sxm-80gb."
            )
        assumed.append(f"GPU {guess}: {why}")
        gpu = gpu_named(guess)
    if not table.rows and table.bad:
        raise SpecError(*table.bad[0], "a measurement", f"None of {len(table.bad)} lines is one.")
    about = About(
        gpu=gpu.id, architecture=gpu.architecture, datasheet=_datasheet(gpu), source=f"{kind} {label(path)}", **table.about
    )
    return KernelTimes(kind, dataset(about, table.rows, str(path)), ignored, tuple(assumed), table.bad)


def _datasheet(gpu: GPU) -> dict[str, float]:
    """The data sheet of a GPU outside the catalogue, so that the dataset is self-contained; empty for a GPU of the catalogue."""
    if gpu.id in names("gpus"):
        return {}
    sheet: dict[str, Any] = {f"peak.{name}": rate for name, rate in gpu.peak.items()}
    sheet |= {"memory_bandwidth": gpu.memory_bandwidth, "memory": gpu.memory, "l2": gpu.l2, "sms": gpu.sms}
    return {name: float(value) for name, value in sheet.items() if value is not None}


USUAL = {"a100": "a100-sxm-80gb", "h100": "h100-sxm-80gb", "v100": "v100-sxm2-32gb"}
"""The variant that published tables mean by a word without form factor or memory."""


def gpu_named(word: str, path: str = "--gpu") -> GPU:
    """A catalogue name, a driver's name or a TOML file of a GPU. Raises UnknownName, or what a broken file raises."""
    try:
        return load_gpu(word)
    except UnknownName:
        pass
    try:
        return match_gpu(word)
    except UnknownName:
        near = UnknownName(path, word, names("gpus"))
        raise SpecError(
            path,
            word,
            "a GPU of `windtunnel catalog gpus`, or a TOML file that describes one",
            f"{near.hint} For a GPU that is not there, copy an entry, change its figures and give its path.".strip(),
        ) from None


def gpu_of_path(path: Path) -> str | None:
    """Catalogue id of the last word of `path` that begins one, such as `h100` or `b200`; a100 with pcie is the PCIe board."""
    words = re.split(r"[^a-z0-9]+", str(path).lower())
    known = names("gpus")
    for word in reversed(words):
        matches = [name for name in known if name.split("-")[0] == word]
        if matches:
            pcie = [name for name in matches if "pcie-80gb" in name]
            if "pcie" in words and pcie:
                return pcie[0]
            return USUAL.get(word, matches[0])
    return None
