"""A whole run with failures, of `choose`: sliders for the rate of failures, the time between checkpoints, and spare nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from windtunnel.service.door import Asked
from windtunnel.service.page.asking import Asking, Wanted, draw_chart, show_command, show_numbers
from windtunnel.service.page.charts.plans import interval_curve, time_parts
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, sets_list
from windtunnel.service.page.frame import card
from windtunnel.service.page.studies import job_arguments
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
        with card(say_("choose.run"), say_("choose.run_about"), "run"):
            with ui.element("div").classes("wt-form"):
                self._law = form.choice("law", say_("choose.law"), [FIRST_LAW], FIRST_LAW)
                form.text("days", say_("choose.days_of_run"), hint="30")
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
        days = form.value("days").strip()
        return Wanted(
            "goodput", {**arguments, "closed": True, **({"days": days} if days else {})}, dict(self._context.question.files)
        )

    def _draw(self, table: Mapping[str, Any], asked: Asked) -> None:
        say_, closed = self._context.say, table["closed"]
        if not (self._form.number("rate") or 0.0) or self._law_of_rates != self._form.value("law"):
            self._learn_rates(table)
        show_numbers([
            (say_("choose.goodput"), say.percent(table["goodput"])), (say_("choose.mtbf"), say.seconds(closed["mtbf"])),
            (say_("choose.interval_used"), say.seconds(table["interval_s"])),
            (say_("choose.recovery"), say.seconds(closed["recovery"])),
            (say_("choose.days"), "–" if table.get("expected_days") is None else f"{table['expected_days']:,.1f}"),
            (say_("choose.spares_used"), _spares(table)),
        ])  # fmt: skip
        with ui.element("ul").classes("wt-sentences"):
            for reason in table["reasons"]:
                with ui.element("li"):
                    ui.label(reason)
        with ui.element("div").classes("wt-two"):
            with ui.element("div"):
                ui.html(say_("choose.interval_title"), tag="h3", sanitize=False)
                names = (say_("choose.interval_axis"), say_("choose.goodput_axis"))
                curve = interval_curve(table["interval_curve"], table["interval_s"], table["best_interval_s"], names)
                draw_chart(curve, say_("choose.interval_title"), 280)
            with ui.element("div"):
                ui.html(say_("choose.lost"), tag="h3", sanitize=False)
                parts = time_parts(closed["parts"], _part_words(self._context), say_("choose.of_run"))
                draw_chart(parts, say_("choose.lost"), 280)
        show_command(self._context, asked.command, asked.key)

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


def _spares(table: Mapping[str, Any]) -> str:
    """Nodes that stand by."""
    return str(table["spares"][0]["spares"]) if table.get("spares") else "0"


def _part_words(context: PageContext) -> dict[str, str]:
    return {
        "detect": context.say("choose.detect"), "diagnose": context.say("choose.diagnose"), "drag": context.say("choose.drag"),
        "init": context.say("choose.init"), "load": context.say("choose.load"), "repair": context.say("choose.repair"),
        "replay": context.say("choose.replay"), "save": context.say("choose.save"), "slow": context.say("choose.slow"),
        "wait": context.say("choose.wait"),
    }  # fmt: skip
