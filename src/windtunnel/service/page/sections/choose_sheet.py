"""Budget and days, of `choose`: machines, days, money, error, goodput, rent or buy on one sheet that can be forwarded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.search.budget.sheet import rent_or_buy_sheet
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, show_command
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, read_percent, sets_list, sets_of
from windtunnel.service.page.frame import card
from windtunnel.service.page.sheets import draw_sheet

PRINT = (
    "document.body.classList.add('wt-only-sheet'); window.addEventListener('afterprint', "
    "() => document.body.classList.remove('wt-only-sheet'), {once: true}); window.print()"
)


def build_sheet(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    sheet: dict[str, Any] = {}
    with card(say_("choose.sheet"), say_("choose.sheet_about"), "sheet"):
        with ui.element("div").classes("wt-form"):
            form.option("budget", say_("choose.budget"), first="2M")
            form.option("days", say_("choose.deadline"), first="30")
            form.option("loss", say_("choose.loss"), hint="2.0")
            form.option("on", say_("choose.clusters"), first="h100-ib,b200-ib")
            form.option("gpus", say_("choose.gpus"), hint="256, 512, 1024")
            form.option("model", say_("choose.model"), hint="llama3.1-8b")
            form.option("tokens", say_("choose.tokens"), hint="2T")
            form.option("goodput", say_("choose.goodput_share"), first="95", reads=read_percent, times=100)
            form.text("set", say_("choose.sets"), wide=True, hint="cluster.price_per_gpu_hour=1.8")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("choose.sheet_go"), color=None).props("unelevated").classes("wt-go")
            ui.button(say_("choose.copy_link"), on_click=lambda: _copy_link(context), color=None).props("flat").classes("wt-other")
            ui.button(say_("choose.print"), on_click=lambda: ui.run_javascript(PRINT), color=None).props("flat").classes("wt-other")

        async def draw(table: Mapping[str, Any], asked: Asked) -> None:
            """Draws the rented machines; then the same bought, when that is known."""
            sheet["rent"] = table
            _draw_sheet(context, table, None, asked)

        rented = Asking(context, draw, "sheet-answer")
        bought = Asking(context, lambda table, _: _draw_both(table), "sheet-both")

    def _draw_both(table: Mapping[str, Any]) -> None:
        rented.result.clear()
        _draw_sheet(context, sheet["rent"], table, sheet["asked"])

    async def ask() -> None:
        bought.result.clear()
        asked = await rented.run(lambda: wanted_plan(form, "rent"))
        if asked is not None:
            sheet["asked"] = asked
            await bought.run(lambda: wanted_plan(form, "buy"))

    ask_on_click(form, "run", go, ask)


async def _copy_link(context: PageContext) -> None:
    """The address with everything on the sheet."""
    await context.keep_typed()
    ui.run_javascript("navigator.clipboard.writeText(location.href.replace(/#.*$/, '') + '#sheet')")


def wanted_plan(form: Form, mode: str) -> Wanted:
    """The question of the form. `mode`: rent or buy."""
    arguments = form.arguments("budget", "loss", "model", "tokens", "days", "gpus")
    if machines := form.value("on").replace(" ", ""):
        arguments["on"] = [machines]
    share = form.number("goodput")
    if share is not None:
        arguments["goodput"] = share / 100
    asked = sets_list(arguments, {**sets_of(form.value("set")), "cluster.economics.mode": mode})
    return Wanted("plan", asked, artefacts=PAGE if mode == "rent" else ())


def _draw_sheet(context: PageContext, rent: Mapping[str, Any], buy: Mapping[str, Any] | None, asked: Asked) -> None:
    draw_sheet(context, rent_or_buy_sheet(rent, buy))
    show_command(context, asked.command, asked.key)
