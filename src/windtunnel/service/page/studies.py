"""Looks of sections that ask long questions: forms, facts, charts, sheets. The sheet of a kept answer on the page: the drawer of
static pages, with its own looks, in the reader's language.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from nicegui import ui

from windtunnel.base.errors import SpecError
from windtunnel.draw.page import frame
from windtunnel.draw.page.sheet import part_of_page
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import show_command
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.state import Question, ViewState, anchor
from windtunnel.sheet.blocks import Sheet
from windtunnel.sheet.codec import sheet_of
from windtunnel.spec import load_job, names

FIRST_JOB = "llama3-8b-8xh100"
LOOKS = Path(__file__).with_name("studies.css")


def use_looks() -> None:
    """Adds the looks to the page that is built."""
    ui.add_css(LOOKS.read_text(encoding="utf-8"))


def job_arguments(context: PageContext) -> dict[str, Any]:
    """The job that is asked about, as the door takes it; an example where none was named."""
    arguments = context.question.arguments()
    return arguments if arguments["job"] else {"job": FIRST_JOB}


def machine_words(asked: Question) -> str:
    """The machine of a question and its number of GPUs: `h100-ib · 32 GPUs`; empty where the job alone, which was pasted, says it.
    No file is opened: jobs are those of the catalogue."""
    own = load_job(asked.job).cluster if isinstance(asked.job, str) and asked.job in names("jobs") else None
    machine = asked.changes.get("cluster") or asked.on or (own.id if own else "")
    gpus = asked.changes.get("cluster.gpus") or (f"{own.gpus:,}" if own else "")
    return f"{machine} · {gpus} GPUs" if machine and gpus else machine


def machine_line(context: PageContext, key: str) -> None:
    """The sentence `key` with the machine of the job; it follows the job, and is not there where the machine is not known."""
    line = ui.label().classes("wt-soft wt-number").props(f'data-line="{key}"')

    def follow_job() -> None:
        asked = context.question
        words = machine_words(asked if asked.is_asked else Question(FIRST_JOB))
        line.set_text(context.say(key, machine=words) if words else "")
        line.set_visibility(bool(words))

    context.listen(follow_job)
    follow_job()


def job_line(context: PageContext) -> None:
    """Which job all of this is about, and where to change it."""
    asked = context.question
    with ui.element("div").classes("wt-form wt-jobline"):
        if isinstance(asked.job, str) and not asked.files:
            field = ui.input(context.say("choose.job"), value=asked.job or FIRST_JOB).props("outlined dense stack-label")
            field.classes("wt-field wt-wide")

            def with_job(view: ViewState) -> ViewState:
                name = str(field.value or "").strip()
                moved = name and name != (view.question.job or FIRST_JOB)
                return view.with_question(replace(view.question, job=name)) if moved else view

            async def keep() -> None:
                await context.show(with_job(context.view))

            context.when_typed(with_job)

            async def offer() -> None:
                field.set_autocomplete([*await context.door.catalogue("jobs"), *await context.door.catalogue("models")])

            field.on("blur", keep)
            field.on("keydown.enter", keep)
            ui.timer(0.0, offer, once=True)
        else:
            ui.label(context.say("choose.pasted")).classes("wt-strong")
        machine_line(context, "choose.on_machine")
        anchor(context.say("choose.change"), context.link("compose")).classes("wt-small")


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
