"""The sheet of a kept answer on the page: the drawer of static pages, with its own looks, in the reader's language."""

from __future__ import annotations

import json
from functools import cache

from nicegui import ui

from windtunnel.base.errors import SpecError
from windtunnel.draw.page import frame
from windtunnel.draw.page.sheet import part_of_page
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import show_command
from windtunnel.service.page.context import PageContext
from windtunnel.sheet.blocks import Sheet
from windtunnel.sheet.codec import sheet_of

SHEET = ("html", "sheet")
"""Artefacts of an answer that is shown so: the page of its link, and its sheet."""


@cache
def _looks() -> str:
    return str(frame.asset("page.css")) + ":host { display: block; } section { margin: 12px 0; }"


def use_sheets() -> None:
    """Adds the script that draws sheets to the page that is built."""
    ui.add_body_html(f"<script>{frame.asset('page.js')}</script>")


def draw_sheet(context: PageContext, sheet: Sheet) -> None:
    """Draws a sheet in the reader's language."""
    element = ui.element("wt-sheet")
    element._props["looks"] = _looks()  # noqa: SLF001 -- text of any length, which `props` would parse
    element._props["markup"] = str(part_of_page(sheet, context.language.code))  # noqa: SLF001


async def kept_sheet(context: PageContext, asked: Asked) -> Sheet | None:
    """What an answer shows, if it was asked for with its sheet."""
    found = await context.door.artefact(asked.key, "sheet")
    return None if found is None else sheet_of(json.loads(found[0]))


async def show_sheet(context: PageContext, asked: Asked) -> None:
    """Shows what an answer says, and its command line. SpecError for an answer that was asked for without its sheet."""
    sheet = await kept_sheet(context, asked)
    if sheet is None:
        raise SpecError("answer", asked.verb, "an answer with its sheet", "Ask again.")
    draw_sheet(context, sheet)
    show_command(context, asked.command, asked.key)
