"""Verbs of `windtunnel profile` on datasets that were measured: show, export, gains, import; and `profile host`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.units import show_time
from windtunnel.capture.options import HostOptions
from windtunnel.cli.shared.common import Json, notes, show_spinner, writable, write, write_json
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.jobs.options import KernelTimesCommandOptions

if TYPE_CHECKING:
    from windtunnel.profile.gains import Gain


def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A dataset of `windtunnel profile`, Parquet or CSV.")],
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.records import read_any
    from windtunnel.records.kernel_dataset import contents_of, dataset_sheet

    data = read_any(file)
    outputs.show(dataset_sheet(data), contents_of(data))


def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A dataset, Parquet or CSV.")],
    csv: Annotated[str, typer.Option("--csv", metavar="FILE|-", help="Where the CSV goes; `profile import` reads it back.")] = "-",
) -> None:
    from windtunnel.records import read_any, to_csv

    writable(("--csv", csv))
    write(to_csv(read_any(file)), csv, "--csv")


def gains(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A Parquet file of `windtunnel profile`.")],
    json: Json = None,
) -> None:
    from windtunnel.profile.gains import gains as gains_of
    from windtunnel.records import read

    data = read(file)
    pairs = gains_of(data)
    if json is not None:
        write_json({"gpu": data.about.gpu, "gains": [one.as_dict() for one in pairs]}, json)
    if json == "-":
        return
    if not pairs:
        notes().print(f"{file} holds no shape measured both in eager mode and in another one.", markup=False, soft_wrap=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("model", "what", "phase", "dtype", "mode"):
        table.add_column(name)
    for name in ("eager", "this mode", "gain"):
        table.add_column(name, justify="right")
    for one in pairs:
        table.add_row(
            one.what.get("model", ""),
            _what(one),
            one.what["phase"],
            one.what["dtype"],
            one.mode,
            show_time(one.eager),
            show_time(one.seconds),
            f"{one.gain:.2f}",
        )
    console = Console()
    console.print(f"{data.about.gpu}: eager time over the mode's", highlight=False)
    console.print(table)


def _what(one: Gain) -> str:
    """`layer x4 by hf`, or a kernel with its sizes."""
    words = dict(word.split("=") for word in str(one.what.get("shape", "")).split())
    layers = f" x{words['layers']}" if "layers" in words else " (each)" if one.what["op"] == "layer" else ""
    sizes = " x ".join(str(one.what[name]) for name in ("m", "n", "k") if name in one.what)
    library = one.what.get("library")
    name = one.what["op"] if one.what["level"] != "kernel" else one.what["name"]
    return f"{name}{layers}{f' {sizes}' if sizes else ''}{f' by {library}' if library else ''}"


def host(asked: HostOptions, outputs: Outputs) -> None:
    from windtunnel.capture.host import host_sheet, profile_host

    tell = (lambda text: None) if outputs.quiet else lambda text: notes().print(text, markup=False)
    found = profile_host(**{**vars(asked), "progress": tell})
    outputs.show(host_sheet(found), found.as_dict)


def import_times(asked: KernelTimesCommandOptions) -> None:
    from windtunnel.formats.machines.kernels.measurements import import_measurements
    from windtunnel.records import to_csv
    from windtunnel.records import write as write_dataset

    out, json = asked.out, asked.json
    with show_spinner(f"reading {asked.path}"):
        imported = import_measurements(asked.path, asked.gpu, asked.format, asked.dtype)
        if out.endswith(".csv"):
            write(to_csv(imported.data), out, "--out")
        else:
            write_dataset(imported.data, out)
    from windtunnel.records.kernel_dataset import contents_of

    if json is not None:
        notes = {"format": imported.format, "file": out, "ignored": list(imported.ignored), "assumed": list(imported.assumed)}
        write_json({**notes, **contents_of(imported.data)}, json)
    if asked.quiet or json == "-":
        return
    from rich.console import Console
    from rich.text import Text

    from windtunnel.draw.terminal import print_sheet
    from windtunnel.records.kernel_dataset import contents_table
    from windtunnel.sheet.blocks import Section, Sheet

    console = Console(highlight=False)
    console.print(Text(f"{len(imported.data):,} rows of {imported.data.about.gpu} from {imported.format}, in {out}", style="bold"))
    print_sheet(Sheet("", "", (), (Section("", (contents_table(imported.data),)),), titled=True), console)
    for word, lines in (("ignored", imported.ignored), ("assumed", imported.assumed)):
        for line in lines:
            console.print(Text(f"{word}: {line}", style="dim"))
