"""`windtunnel validate [FILE]...`."""

from __future__ import annotations

from dataclasses import replace

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from windtunnel.cli.shared.common import notes, write, write_json
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.cli.shared.pages import check_html, said_command
from windtunnel.cli.shared.progress import tell_watchers, watchers
from windtunnel.reality.options import ValidateCommandOptions
from windtunnel.reality.validate import validate_of

EXAMPLES = """\b
Examples:
  windtunnel validate
  windtunnel validate --family H100-NeMo
  windtunnel validate my_runs.csv --html page.html
"""


ORDER = ("paths", "family", "json", "markdown", "html", "record", "gpu", "dtype", "kernels", "processes")


@bare_command_of(ValidateCommandOptions, order=ORDER)
def command(asked: ValidateCommandOptions) -> None:
    json, markdown, html, record = asked.json, asked.markdown, asked.html, asked.record
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

        report = validate_of(replace(asked, progress=step))
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

        founding = "Predicted from the catalogue's curves." if asked.kernels is None else _founding(asked.kernels)
        write(points(report, founding=founding, command=said_command()), html, "--html")
    if not asked.quiet and "-" not in (json, markdown, record):
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
