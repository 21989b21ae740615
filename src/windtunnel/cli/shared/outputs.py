"""Where an answer goes: the terminal, JSON, a page, CSV, or its sheet as data. Every verb that has a sheet has these options.

Shared by verbs that write a page: the option, checks before any work is done, and the command that is shown on it.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from windtunnel.base.dataclasses import dataclass, field, fields
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli.shared.common import Json, Quiet, notes, writable, write, write_json

if TYPE_CHECKING:
    from windtunnel.cli.shared.job import JobSource
    from windtunnel.sheet.blocks import Sheet


def _check_language(value: str) -> str:
    if value != "en":
        from windtunnel.sheet.sentence import LANGUAGES

        if value not in LANGUAGES:
            raise UnknownName("language", value, list(LANGUAGES))
    return value


@dataclass(frozen=True)
class Outputs:
    """What is written beside the text in the terminal. `check` refuses a file that cannot be written before any work is done."""

    json: Json = None
    html: Html = None
    csv: Annotated[str | None, typer.Option("--csv", metavar="FILE|-", help="Write figures and tables as CSV.")] = None
    sheet: Annotated[
        str | None, typer.Option("--sheet", metavar="FILE|-", help="Write what the answer shows as JSON, which pages draw.")
    ] = None
    language: Annotated[
        str, typer.Option("--language", metavar="en|zh", help="Language of text, page and CSV.", callback=_check_language)
    ] = "en"
    quiet: Quiet = False
    source: JobSource | None = field(default=None, metadata={"option": False})
    """What the command line says of its job, of whose source something is told before and after the answer."""

    @property
    def wants_detail(self) -> bool:
        """Whether anything shows more than the terminal does."""
        return any(path is not None for path in (self.html, self.sheet))

    def check(self) -> None:
        """FileError for a file that cannot be written, or a page whose name does not end in .html."""
        writable(*((f"--{name}", getattr(self, name)) for name in ("json", "html", "csv", "sheet")))
        check_html(self.html)
        printed = [f"--{name}" for name in ("json", "csv", "sheet") if getattr(self, name) == "-"]
        if len(printed) > 1:
            raise SpecError(printed[1], "-", "a file: standard output is taken", f"{printed[0]} - prints there already.")

    def show(self, sheet: Sheet | Callable[[], Sheet], table: Any) -> None:
        """Writes an answer where it was asked for. `table`: its plain data, to which figures of the sheet are added that
        it lacks, or its JSON text.

        A verb whose sheet takes time gives functions: they are called where something is drawn, and such a table has all figures.
        """
        if self.source is not None:
            self.source.tell_before()
        if self.json is not None:
            if isinstance(table, str):
                write(table, self.json, "--json")
            else:
                write_json(self._with_figures(table() if callable(table) else table, sheet), self.json)
        if not callable(sheet):
            self._draw(sheet)
        elif self.prints or self.csv is not None or self.wants_detail:
            self._draw(sheet())
        if self.source is not None:
            self.source.tell_after()

    def _draw(self, sheet: Sheet) -> None:
        """Every form of a sheet that was asked for."""
        if self.csv is not None:
            from windtunnel.draw.plain import sheet_csv

            write(sheet_csv(sheet, self.language), self.csv, "--csv")
        if self.sheet is not None:
            from windtunnel.base.json_text import json_text
            from windtunnel.sheet.codec import sheet_table

            write(json_text(sheet_table(sheet)), self.sheet, "--sheet")
        if self.html is not None:
            from windtunnel.draw.page.sheet import write_page

            write_page(sheet, self.html, said_command(), self.language)
            notes().print(f"{self.html}: the report as a page", markup=False)
        self.print(sheet)

    @property
    def prints(self) -> bool:
        """Whether the terminal shows the answer."""
        return not self.quiet and "-" not in (self.json, self.csv, self.sheet)

    def print(self, sheet: Sheet) -> None:
        """Prints a sheet where the terminal shows answers."""
        if self.prints:
            from windtunnel.draw.plain import plain_text

            if (text := plain_text(sheet, self.language)) is not None:
                return write(text, "-", "")
            from windtunnel.draw.terminal import print_sheet

            print_sheet(sheet, None, self.language)

    @staticmethod
    def _with_figures(table: Any, sheet: Any) -> Any:
        from windtunnel.draw.plain import with_figures

        return with_figures(table, sheet) if isinstance(table, dict) and not callable(sheet) else table


def with_outputs(command: Callable[..., None]) -> Callable[..., None]:
    """A verb's function whose last parameter, `outputs`, typer sees as the options of `Outputs`."""
    stated = [one for one in fields(Outputs) if one.metadata.get("option", True)]
    names = [one.name for one in stated]
    hints = get_type_hints(command, include_extras=True)
    own = [parameter.replace(annotation=hints[name]) for name, parameter in inspect.signature(command).parameters.items()
           if name != "outputs"]  # fmt: skip
    shared = get_type_hints(Outputs, {**globals(), "JobSource": object}, include_extras=True)
    more = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=shared[one.name])
        for one in stated
    ]

    def run(**given: Any) -> None:
        outputs = Outputs(**{name: given.pop(name) for name in names})
        outputs.check()
        command(**given, outputs=outputs)

    run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *more)}
    run.__doc__ = command.__doc__
    return run


Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a page with drawings.")]


def check_html(html: str | None) -> None:
    """FileError for a page whose name does not end in .html, before anything is simulated."""
    if html is not None:
        from windtunnel.draw.page.frame import check_page

        check_page(html)


def said_command() -> str:
    """The command line, to repeat it."""
    return shlex.join(["windtunnel", *sys.argv[1:]])
