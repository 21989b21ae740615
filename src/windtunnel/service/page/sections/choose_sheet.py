"""Budget and days, of `choose`: machines, days, money, error, goodput, rent or buy on one sheet that can be forwarded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, show_command, show_table
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, read_percent, sets_list, sets_of
from windtunnel.service.page.frame import card
from windtunnel.sheet import numbers as say

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


def sheet_rows(rented: Sequence[Mapping[str, Any]], bought: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """A row for each way: machine, GPUs, model, tokens, days, loss, dollars rented and bought, error, goodput, MFU, limits."""
    also = {_machine_key(one): one for one in bought}
    rows = []
    for one in rented:
        own = also.pop(_machine_key(one), None)
        rows.append(_row(one) | {"rent": round(one["cost"]), "buy": None if own is None else round(own["cost"])})
    rows += [_row(one) | {"rent": None, "buy": round(one["cost"])} for one in also.values()]
    return rows


def _machine_key(one: Mapping[str, Any]) -> str:
    return json.dumps([one["cluster"], one["gpus"], one["model"] if not str(one["model"]).startswith("decoder-") else ""])


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "machine": one["cluster"], "gpus": one["gpus"], "model": say.count(one["parameters"]), "tokens": say.count(one["tokens"]),
        "days": round(one["days"], 1), "loss": None if one.get("loss") is None else round(one["loss"], 4),
        "error": f"± {say.percent(one['relative_error'])}", "goodput": f"{100 * one['ettr']:.0f} %",
        "mfu": f"{100 * one['mfu']:.1f} %", "limits": ", ".join(one["limits"]), "meets": "✓" if one["meets_all"] else "–",
    }  # fmt: skip


def _draw_sheet(context: PageContext, rent: Mapping[str, Any], buy: Mapping[str, Any] | None, asked: Asked) -> None:
    say_ = context.say
    ui.label(say_("choose.meets" if rent["meets_all"] else "choose.meets_not", law=rent["law"]["name"])).classes("wt-soft")
    columns = [
        ("machine", say_("choose.col_machine")), ("gpus", say_("choose.col_gpus")), ("model", say_("choose.col_parameters")),
        ("tokens", say_("choose.col_tokens")), ("days", say_("choose.col_days")), ("loss", say_("choose.col_loss")),
        ("rent", say_("choose.col_rent")), ("buy", say_("choose.col_buy")), ("error", say_("choose.col_error")),
        ("goodput", say_("choose.col_goodput")), ("mfu", "MFU"), ("limits", say_("choose.col_limits")),
        ("meets", say_("choose.col_meets")),
    ]  # fmt: skip
    rows = sheet_rows(rent["alternatives"], () if buy is None else buy["alternatives"])
    with ui.element("div").classes("wt-scroll"):
        show_table(columns, rows, say_("choose.sheet"))
    assumed = sorted({word for one in rent["alternatives"] for word in one["assumed"]})
    if assumed:
        ui.label(say_("choose.assumed", what=", ".join(assumed))).classes("wt-soft wt-small")
    show_command(context, asked.command, asked.key)
