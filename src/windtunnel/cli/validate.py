"""`windtunnel validate [FILE]...` and `windtunnel suite [MODEL]...`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from windtunnel.api.options import SuiteOptions
from windtunnel.cli.shared.common import bar, notes, tell_watchers, watchers, write
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.reality.options import ValidateCommandOptions
from windtunnel.sheet.sentence import Sentence, join

if TYPE_CHECKING:
    from windtunnel.sheet.blocks import Sheet


def command(asked: ValidateCommandOptions, outputs: Outputs) -> None:
    from windtunnel.reality.validate import validate_of

    markdown, record = asked.markdown, asked.record
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
    if markdown is not None:
        from windtunnel.reality.page.markdown import markdown as page

        write(page(report, "windtunnel validate --markdown"), markdown, "--markdown")
    if record is not None:
        from windtunnel.reality.page.record import record as by_machine

        write(by_machine(report), record, "--record")
    founding = "Predicted from the catalogue's curves." if asked.kernels is None else _founding(asked.kernels)

    def sheet() -> Sheet:
        from windtunnel.reality.page.sheet import validation_sheet

        return validation_sheet(report, founding)

    replace(outputs, quiet=outputs.quiet or "-" in (markdown, record)).show(sheet, report.as_dict)


def _founding(path: str) -> Sentence:
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
    words = [f"{name} {value}" for part in ("libraries", "settings") for name, value in dict(curves.about.get(part, {})).items()]
    on = ", ".join(word for word in (str(curves.about.get("device", "")), *words) if word)
    source = Sentence(
        "Predicted from {file}: curves of {id} ({counts}).", file=Path(path).name, id=curves.id, counts=", ".join(counts)
    )
    return join((source, Sentence("Measured on {device}.", device=on)), " ") if on else source


def suite(asked: SuiteOptions, outputs: Outputs) -> None:
    from windtunnel.api.suite import suite_of

    with bar("predicting") as progress:
        suite = suite_of(replace(asked, progress=progress))

    def sheet() -> Sheet:
        from windtunnel.api.suite import suite_sheet

        return suite_sheet(suite)

    outputs.show(sheet, suite.as_dict)
