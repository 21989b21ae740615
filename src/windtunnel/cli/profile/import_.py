"""`windtunnel profile import PATH --gpu ID -o FILE.parquet`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.common import Dtype, Gpu, Json, Quiet, show_spinner, writable, write_json
from windtunnel.cli.shared.common import write as write_text


def command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file, or a folder with the files of one GPU.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE.parquet", help="Where the dataset goes; .csv writes it as CSV.")],
    gpu: Gpu = None,
    format: Annotated[
        str | None, typer.Option("--format", help="vidur, simumax, llmcompass or table; default: known by the content.")
    ] = None,
    dtype: Dtype = None,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    from windtunnel.formats.machines.kernels.measurements import import_measurements
    from windtunnel.records import to_csv, write

    writable(("--out", out), ("--json", json))
    with show_spinner(f"reading {path}"):
        imported = import_measurements(path, gpu, format, dtype)
        if out.endswith(".csv"):
            write_text(to_csv(imported.data), out, "--out")
        else:
            write(imported.data, out)
    from windtunnel.records.contents import contents_of

    if json is not None:
        notes = {"format": imported.format, "file": out, "ignored": list(imported.ignored), "assumed": list(imported.assumed)}
        write_json({**notes, **contents_of(imported.data)}, json)
    if quiet or json == "-":
        return
    from rich.console import Console
    from rich.text import Text

    from windtunnel.draw.terminal import print_sheet
    from windtunnel.records.contents_sheet import contents_table
    from windtunnel.sheet.blocks import Section, Sheet

    console = Console(highlight=False)
    console.print(Text(f"{len(imported.data):,} rows of {imported.data.about.gpu} from {imported.format}, in {out}", style="bold"))
    print_sheet(Sheet("", "", (), (Section("", (contents_table(imported.data),)),), titled=True), console)
    for word, lines in (("ignored", imported.ignored), ("assumed", imported.assumed)):
        for line in lines:
            console.print(Text(f"{word}: {line}", style="dim"))
