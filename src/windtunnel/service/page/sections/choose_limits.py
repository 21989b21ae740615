"""The sensitivity of `choose`: what 10 % more of each rate saves, and what every switch does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, draw_chart, show_command
from windtunnel.service.page.charts.plans import limit_bars, switch_bars
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.frame import card
from windtunnel.service.page.studies import job_arguments
from windtunnel.sheet import numbers as say

MOST_SWITCHES = 12


def build_limits(context: PageContext) -> None:
    """Builds the card."""
    with card(context.say("choose.limits"), context.say("choose.limits_about"), "limits"):
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(context.say("choose.limits_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda table, asked: _draw_limits(context, table, asked), "limits-answer")

    async def ask() -> None:
        await asking.run(lambda: Wanted("sensitivity", job_arguments(context), dict(context.question.files), PAGE))

    go.on_click(ask)


def _draw_limits(context: PageContext, table: Mapping[str, Any], asked: Asked) -> None:
    say_ = context.say
    ui.label(say_("choose.step_is", step=say.seconds(table["step_time_s"]))).classes("wt-soft")
    switches = sorted(table["switches"], key=lambda one: -abs(one["gain"]))[:MOST_SWITCHES]
    with ui.element("div").classes("wt-two"):
        with ui.element("div"):
            ui.html(say_("choose.rates"), tag="h3", sanitize=False)
            draw_chart(limit_bars(table["limits"], say_("choose.of_step")), say_("choose.rates"), 110 + 30 * len(table["limits"]))
        with ui.element("div"):
            ui.html(say_("choose.switches"), tag="h3", sanitize=False)
            draw_chart(switch_bars(switches, say_("choose.of_step")), say_("choose.switches"), 110 + 30 * len(switches))
    show_command(context, asked.command, asked.key)
