"""The section `choose`: the best plan and why, what limits it, a run with failures, and what it costs."""

from __future__ import annotations

from nicegui import ui

from windtunnel.goodput.options import GoodputCommandOptions
from windtunnel.search.options import PlanOptions, SearchCommandOptions
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.sections.choose_run import build_whole_run
from windtunnel.service.page.sections.choose_search import build_search
from windtunnel.service.page.sections.choose_sheet import build_sheet
from windtunnel.service.page.sheets import SHEET, show_sheet
from windtunnel.service.page.studies import job_arguments, job_line, use_looks


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    heading(context.say("choose.title"), context.say("choose.about"))
    job_line(context)
    build_search(context, Form(context, "s.", SearchCommandOptions))
    build_limits(context)
    build_whole_run(context, Form(context, "g.", GoodputCommandOptions))
    build_sheet(context, Form(context, "b.", PlanOptions))


def build_limits(context: PageContext) -> None:
    """Builds the card."""
    with card(context.say("choose.limits"), context.say("choose.limits_about"), "limits"):
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(context.say("choose.limits_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "limits-answer")

    async def ask() -> None:
        await asking.run(lambda: Wanted("sensitivity", job_arguments(context), dict(context.question.files), SHEET))

    go.on_click(ask)
