"""Looks of sections that ask long questions: forms, facts, charts, sheets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from nicegui import ui

from windtunnel.service.page.anchors import anchor
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.state import ViewState

FIRST_JOB = "llama3-8b-8xh100"
LOOKS = Path(__file__).with_name("studies.css")


def use_looks() -> None:
    """Adds the looks to the page that is built."""
    ui.add_css(LOOKS.read_text(encoding="utf-8"))


def job_arguments(context: PageContext) -> dict[str, Any]:
    """The job that is asked about, as the door takes it; an example where none was named."""
    arguments = context.question.arguments()
    return arguments if arguments["job"] else {"job": FIRST_JOB}


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
        anchor(context.say("choose.change"), context.link("compose")).classes("wt-small")
