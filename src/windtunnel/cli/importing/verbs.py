"""`windtunnel import FILE...`, `import torch TARGET` and `import aiconfigurator [FOLDER]`: what other tools wrote, as ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError
from windtunnel.cli.importing.content import save, show
from windtunnel.cli.shared.common import notes, print_list, show_spinner, write_json
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.formats.reading import Content
from windtunnel.jobs.options import ImportOptions, MeasuredTablesCommandOptions, TorchCommandOptions
from windtunnel.jobs.reading import join_call

if TYPE_CHECKING:
    from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine


@bare_command_of(ImportOptions, order=("paths", "on", "overrides", "cluster", "format"))
def import_files(asked: ImportOptions) -> None:
    from windtunnel.api.jobs import read_of
    from windtunnel.cli.shared.progress import bar

    files, out, json = join_call([str(path) for path in asked.paths]), asked.out, asked.json
    with bar("reading") as shown:
        reading = read_of(replace(asked, paths=files, progress=shown))
    if json is not None:
        write_json(reading.as_dict(), json)
    if reading.content is Content.JOB and reading.facts:
        if json != "-":
            from windtunnel.cli.importing.job import write_configuration

            write_configuration(", ".join(files), reading, out)
        return
    if json != "-":
        show(reading, files, None if out == "-" else out)
    if out != "-":
        save(reading, out)


@bare_command_of(TorchCommandOptions)
def import_module(asked: TorchCommandOptions) -> None:
    from windtunnel.api.jobs import import_torch_of
    from windtunnel.cli.importing.job import write_job
    from windtunnel.jobs.imports import put_on_machine
    from windtunnel.spec import dump_job

    target, on, sets, out = asked.target, asked.on, list(asked.sets), asked.out
    with show_spinner(f"tracing {target}"):
        imported = import_torch_of(asked)
    if on is None and not sets:
        write_job(f"{target} ({imported.format})", imported, None, out)
    else:
        loaded = put_on_machine(imported, on, sets)
        write_job(f"{target} ({imported.format})", loaded, dump_job(loaded.job), out)
    if out != "-":
        print_list(imported.built, f"{imported.model.name} in {out}")
        print_list(imported.assumed, "assumed")


@bare_command_of(MeasuredTablesCommandOptions, order=("folder", "out"))
def import_measured(asked: MeasuredTablesCommandOptions) -> None:
    from windtunnel.api.jobs import read_measured_of
    from windtunnel.cli.shared.progress import bar

    out, json = asked.out, asked.json
    with bar("reading") as shown:
        read = read_measured_of(replace(asked, progress=shown))
    written = [] if out is None else [name for one in read.engines for name in save_engine(one, Path(out))]
    rows = [_facts(one) for one in read.engines]
    if json is not None:
        write_json({"engines": rows, "files": written, "ignored": list(read.ignored), "assumed": list(read.assumed)}, json)
    if asked.quiet or json == "-":
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("gpu", "engine", "release", "kernels", "modules", "calls"):
        table.add_column(name, justify="right" if name in ("kernels", "modules", "calls") else "left")
    for row in rows:
        table.add_row(row["gpu"], row["engine"], row["release"], *(f"{row[name]:,}" for name in ("kernels", "modules", "calls")))
    Console(highlight=False).print(table)
    print_list(read.ignored, "ignored", most=200)
    print_list(read.assumed, "assumed")
    if out is None:
        notes().print("Nothing was written: -o FOLDER writes the datasets.", markup=False)


def save_engine(one: MeasuredEngine, folder: Path) -> list[str]:
    """Writes the dataset and the calls of one release; the names of its files."""
    from windtunnel.formats.machines.kernels.measured.calls import calls_text
    from windtunnel.records import write

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(str(folder), error.strerror or str(error), "a folder that can be written") from None
    names: list[str] = []
    if one.data is not None:
        write(one.data, folder / f"{one.stem}.parquet")
        names.append(f"{one.stem}.parquet")
    if one.calls:
        text = calls_text(one.gpu, one.engine, one.release, one.calls)
        (folder / f"{one.stem}-calls.csv").write_text(text, encoding="utf-8")
        names.append(f"{one.stem}-calls.csv")
    return names


def _facts(one: MeasuredEngine) -> dict[str, Any]:
    kernels = 0 if one.data is None else len(one.data.where(level="kernel"))
    rows = 0 if one.data is None else len(one.data)
    return {
        "gpu": one.gpu, "engine": one.engine, "release": one.release, "kernels": kernels, "modules": rows - kernels,
        "calls": len(one.calls),
    }  # fmt: skip
