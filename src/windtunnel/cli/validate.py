"""`windtunnel validate [FILE]...`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from windtunnel.cli.shared.common import Dtype, Gpu, Json, Quiet, notes, writable, write, write_json
from windtunnel.cli.shared.pages import check_html, said_command
from windtunnel.cli.shared.progress import tell_watchers, watchers
from windtunnel.reality.validate import validate

EXAMPLES = """\b
Examples:
  windtunnel validate
  windtunnel validate --family H100-NeMo
  windtunnel validate my_runs.csv --html page.html
"""


def command(  # long: one option a line
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Tables or datasets of measurements; default: the catalogue's.")
    ] = None,
    family: Annotated[str | None, typer.Option("--family", help="Only the rows of one family.")] = None,
    json: Json = None,
    markdown: Annotated[str | None, typer.Option("--markdown", metavar="FILE|-", help="Write the accuracy page.")] = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a page with every point.")] = None,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="FILE|-", help="Write the errors that predictions quote."),
    ] = None,
    gpu: Gpu = None,
    dtype: Dtype = None,
    kernels: Annotated[
        str | None, typer.Option("--kernels", metavar="FILE.json", help="Curves of `fit kernels` instead of the catalogue's.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; default: one for each core.")] = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json), ("--markdown", markdown), ("--html", html), ("--record", record))
    check_html(html)
    console = notes()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as shown:
        task = shown.add_task("validating", total=None)

        told = tell_watchers("validating") if watchers else None

        def step(done: int, total: int, row: str) -> None:
            shown.update(task, completed=done, total=total)
            if told is not None:
                told(done / max(total, 1))

        report = validate(tables or None, family, step, gpu=gpu, dtype=dtype, kernels=kernels, processes=jobs)
    if json is not None:
        write_json(report.as_dict(), json)
    if markdown is not None:
        from windtunnel.reality.page.markdown import markdown as page

        write(page(report, "windtunnel validate --markdown"), markdown, "--markdown")
    if record is not None:
        from windtunnel.reality.page.record import record as by_machine

        write(by_machine(report), record, "--record")
    if html is not None:
        from windtunnel.reality.page.html import page as points

        founding = "Predicted from the catalogue's curves." if kernels is None else _founding(kernels)
        write(points(report, founding=founding, command=said_command()), html, "--html")
    if not quiet and "-" not in (json, markdown, record):
        from windtunnel.cli.validate_table import show

        show(report)


def _founding(path: str) -> str:
    """The origin of a file of curves, in one line."""
    from pathlib import Path

    from windtunnel.compute.curves import PROVENANCES
    from windtunnel.compute.kernel_file import load

    curves = load(path)
    counts = [
        f"{sum(table.provenance == code for table in curves.tables.values())} {word}"
        for code, word in enumerate(PROVENANCES)
        if any(table.provenance == code for table in curves.tables.values())
    ]
    about = curves.about
    words = [f"{name} {value}" for part in ("libraries", "settings") for name, value in dict(about.get(part, {})).items()]
    on = ", ".join(word for word in (str(about.get("device", "")), *words) if word)
    return f"Predicted from {Path(path).name}: curves of {curves.id} ({', '.join(counts)}){f', measured on {on}' if on else ''}."
