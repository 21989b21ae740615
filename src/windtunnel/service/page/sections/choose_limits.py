"""The sensitivity of `choose`: what 10 % more of each rate saves, and what every lever does."""

from __future__ import annotations

from nicegui import ui

from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.frame import card
from windtunnel.service.page.sheets import SHEET, show_sheet
from windtunnel.service.page.studies import job_arguments


def build_limits(context: PageContext) -> None:
    """Builds the card."""
    with card(context.say("choose.limits"), context.say("choose.limits_about"), "limits"):
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(context.say("choose.limits_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "limits-answer")

    async def ask() -> None:
        await asking.run(lambda: Wanted("sensitivity", job_arguments(context), dict(context.question.files), SHEET))

    go.on_click(ask)
