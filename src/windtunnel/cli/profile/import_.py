"""`windtunnel profile import PATH --gpu ID -o FILE.parquet`."""

from __future__ import annotations

from windtunnel.cli.shared.common import show_spinner, write_json
from windtunnel.cli.shared.common import write as write_text
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.jobs.options import KernelTimesCommandOptions


@bare_command_of(KernelTimesCommandOptions, order=("path", "out"))
def command(asked: KernelTimesCommandOptions) -> None:
    from windtunnel.formats.machines.kernels.measurements import import_measurements
    from windtunnel.records import to_csv, write

    out, json = asked.out, asked.json
    with show_spinner(f"reading {asked.path}"):
        imported = import_measurements(asked.path, asked.gpu, asked.format, asked.dtype)
        if out.endswith(".csv"):
            write_text(to_csv(imported.data), out, "--out")
        else:
            write(imported.data, out)
    from windtunnel.records.kernel_dataset import contents_of

    if json is not None:
        notes = {"format": imported.format, "file": out, "ignored": list(imported.ignored), "assumed": list(imported.assumed)}
        write_json({**notes, **contents_of(imported.data)}, json)
    if asked.quiet or json == "-":
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
