"""A whole run with failures, of `choose`: sliders for the rate of failures, the time between checkpoints, and spare nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from windtunnel.service.door import Asked
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, sets_list
from windtunnel.service.page.frame import card
from windtunnel.service.page.sheets import SHEET, show_sheet, use_sheets
from windtunnel.service.page.studies import job_arguments, machine_line
from windtunnel.sheet import numbers as say

FIRST_LAW = "llama3-2024"
KINDS = ("crash", "hang", "bad_node", "slow_node", "storage", "network", "planned")
DEBOUNCE = 0.15
"""Seconds without a movement of a slider before it is asked."""


class WholeRunCard:
    """The card: its sliders, and the run that they describe. Rates are multiples of those of the chosen law."""

    def __init__(self, context: PageContext, form: Form) -> None:
        self._context, self._form = context, form
        self._rates: dict[str, float] = {}
        self._law_of_rates = ""
        self._latest: dict[str, float] = {}
        say_ = context.say
        use_sheets()
        with card(say_("choose.run"), say_("choose.run_about"), "run"):
            machine_line(context, "choose.run_on")
            with ui.element("div").classes("wt-form"):
                self._law = form.choice("law", say_("choose.law"), [FIRST_LAW], FIRST_LAW)
                form.option("days", say_("choose.days_of_run"), hint="30")
            with ui.element("div").classes("wt-sliders"):
                self._slider("rate", say_("choose.rate"), -2.0, 2.0, 0.25, 0.0, lambda v: f"× {2**v:.3g}")
                self._slider("interval", say_("choose.interval"), 0.0, 14.0, 0.25, 0.0, self._interval_words)
                self._slider("spares", say_("choose.spares"), -1.0, 128.0, 1.0, -1.0, self._spares_words)
            with ui.element("div").classes("wt-buttons"):
                ui.button(say_("choose.run_go"), on_click=self.ask, color=None).props("unelevated").classes("wt-go")
            self._asking = Asking(context, self._draw, "run-answer")
        ui.timer(0.0, self._offer, once=True)

    def _interval_words(self, value: float) -> str:
        return self._context.say("choose.best_interval") if value <= 0 else say.seconds(10 * 2**value)

    def _spares_words(self, value: float) -> str:
        return self._context.say("choose.as_law") if value < 0 else f"{value:.0f}"

    def _slider(
        self, name: str, label: str, least: float, most: float, step: float, first: float, words: Callable[[float], str]
    ) -> None:
        self._form._first[name] = f"{first:g}"
        start = self._form.number(name)
        start = first if start is None else min(most, max(least, start))
        with ui.element("div"):
            with ui.element("div").classes("wt-slider-head"):
                ui.label(label).classes("wt-soft")
                shown = ui.label(words(start)).classes("wt-number wt-strong")
            slider = ui.slider(min=least, max=most, step=step, value=start).props(f'aria-label="{label}"')

        async def follow_slider(event: Any) -> None:
            value = self._latest[name] = float(event.value)
            shown.set_text(words(value))
            await asyncio.sleep(DEBOUNCE)
            if self._latest[name] == value:
                await self._form.keep(name, f"{value:g}")
                await self.ask()

        slider.on_value_change(follow_slider)

    async def _offer(self) -> None:
        names = await self._context.door.catalogue("reliability")
        self._law.set_options(names, value=self._law.value)
        if self._form.value("run"):
            await self.ask()

    async def ask(self) -> None:
        """Asks what the sliders say. The first time of a law it asks for the law's own rates before."""
        await self._context.keep_typed()
        await self._form.keep("run", "1")
        if self._form.value("rate") != "0" and self._law_of_rates != self._form.value("law"):
            await self._asking.run(lambda: self._wanted_run({}), lambda table, _: self._learn_rates(table))
        rate = self._form.number("rate") or 0.0
        await self._asking.run(lambda: self._wanted_run({name: value * 2**rate for name, value in self._rates.items() if rate}))

    def _wanted_run(self, rates: Mapping[str, float]) -> Wanted:
        form = self._form
        sets = {"reliability": form.value("law") or FIRST_LAW}
        sets |= {name: f"{value:.6g}" for name, value in rates.items()}
        interval, spares = form.number("interval") or 0.0, form.number("spares")
        if interval > 0:
            sets["reliability.checkpoint.every"] = f"{10 * 2**interval:.4g}"
        if spares is not None and spares >= 0:
            sets["reliability.spares"] = f"{spares:.0f}"
        arguments = sets_list(job_arguments(self._context), sets)
        return Wanted("goodput", {**arguments, "closed": True, **form.arguments("days")}, dict(self._context.question.files), SHEET)

    async def _draw(self, table: Mapping[str, Any], asked: Asked) -> None:
        if not (self._form.number("rate") or 0.0) or self._law_of_rates != self._form.value("law"):
            self._learn_rates(table)
        await show_sheet(self._context, asked)

    def _learn_rates(self, table: Mapping[str, Any]) -> None:
        """The rates of the law itself, which the slider multiplies."""
        law = (table.get("job") or {}).get("reliability") or {}
        changed = self._context.question.changes
        self._rates = {
            f"reliability.{kind}.{key}": law[kind][key]
            for kind in KINDS
            for key in ("per_node_day", "per_job_day")
            if isinstance(law.get(kind), dict) and law[kind].get(key) and f"reliability.{kind}.{key}" not in changed
        }
        self._law_of_rates = self._form.value("law")


def build_whole_run(context: PageContext, form: Form) -> None:
    """Builds the card."""
    WholeRunCard(context, form)
