"""The section `choose`: the best plan and why, what limits it, a run with failures, and what it costs.

The run has sliders for the rate of failures, the time between checkpoints, and spare nodes. The search shows its space, and the
plans while it goes on; a click on one opens it in compose. Budget and days are machines, days, money, error, goodput, rent or buy
on one sheet that can be forwarded.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nicegui import ui

from windtunnel.base.units import parse_time
from windtunnel.goodput.options import GoodputCommandOptions
from windtunnel.search.budget.sheet import rent_or_buy_sheet
from windtunnel.search.change import short_name, value_text
from windtunnel.search.options import PlanOptions, SearchCommandOptions
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, show_command, show_table
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, read_percent, sets_list, sets_of
from windtunnel.service.page.figures import GIB
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.studies import (
    SHEET,
    draw_sheet,
    job_arguments,
    job_line,
    machine_line,
    show_sheet,
    use_looks,
    use_sheets,
)
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


ROUNDS = (2.0, 10.0, 60.0)
"""Seconds of predictions of the rounds before the last, which has no other limit than the reader's: each shows its best plans."""
_NUMBERS = re.compile(r"\[\d+(?:,\d+)*\]")


def build_search(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    with card(say_("choose.search"), say_("choose.search_about"), "search"):
        with ui.element("div").classes("wt-form"):
            form.option("on", say_("choose.on"), hint=say_("choose.as_is"))
            form.option("gpus", say_("choose.gpus"), hint=say_("choose.as_is"))
            form.option("objective", say_("choose.objective"), titles=_objectives(context))
            form.option("margin", say_("choose.margin"), hint="5.5", reads=read_percent, times=100)
            form.option("gap", say_("choose.gap"), reads=read_percent, times=100)
            form.option("limit", say_("choose.limit"), reads=parse_time)
            form.text("set", say_("choose.ranges"), wide=True, hint="plan.tp=4,8 runtime.overlap_tp=true,false")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("choose.go"), color=None).props("unelevated").classes("wt-go")
            look = ui.button(say_("choose.show_space"), color=None).props("flat").classes("wt-other")
        space = Asking(context, lambda _, asked: show_sheet(context, asked), "space")
        found = Asking(context, lambda table, asked: _draw_plans(context, table, asked), "plans")

    async def search() -> None:
        await ask_in_rounds(found, partial(wanted_search, context, form), form.number("limit"))

    async def show_space() -> None:
        await context.keep_typed()
        await space.run(lambda: wanted_search(context, form, None, only_space=True))

    ask_on_click(form, "run", go, search)
    look.on_click(show_space)


async def ask_in_rounds(found: Asking, wanted: Callable[[float | None], Wanted], longest: float | None) -> None:
    """Asks with longer and longer limits, at last with `longest`, until a longer search could not know more."""
    for most in (*(seconds for seconds in ROUNDS if seconds < (longest or math.inf)), longest):
        ignores = None if most == longest else _is_short
        asked = await found.run(partial(wanted, most), ignores=ignores)
        if asked is None and not (ignores and ignores(found.error or {})) or asked is not None and _is_final(asked):
            return


def _objectives(context: PageContext) -> dict[str, str]:
    return {
        "time": context.say("choose.by_time"), "tokens": context.say("choose.by_tokens"),
        "dollars": context.say("choose.by_dollars"),
        "energy": context.say("choose.by_energy"), "memory": context.say("choose.by_memory"),
    }  # fmt: skip


def _is_short(error: Mapping[str, Any]) -> bool:
    """Whether the limit of a round, which the reader did not type, ended it before any plan was found."""
    return error.get("field") == "--limit"


def _is_final(asked: Asked) -> bool:
    """Whether a longer search could not know more."""
    certificate = json.loads(asked.bytes)["certificate"]
    return bool(certificate["exact"] or not certificate["open"])


def wanted_search(context: PageContext, form: Form, most: float | None, only_space: bool = False) -> Wanted:
    """The question of the form. `most`: seconds of predictions."""
    arguments, files = sets_list(job_arguments(context), sets_of(form.value("set"))), dict(context.question.files)
    if machines := [one.strip() for one in form.value("on").split(",") if one.strip()]:
        arguments["on"] = machines
    if gpus := form.value("gpus").replace(" ", ""):
        arguments["gpus"] = gpus
    if only_space:
        return Wanted("search", {**arguments, "dry-run": True}, files, SHEET[1:])
    arguments["objective"] = form.value("objective") or SearchCommandOptions.objective
    margin, gap = form.number("margin"), form.number("gap")
    if margin is not None:
        arguments["margin"] = margin / 100
    if gap:
        arguments["gap"] = gap / 100
    if most is not None:
        arguments["limit"] = most
    return Wanted("search", {**arguments, "top": 40}, files, SHEET)


def _names(context: PageContext) -> dict[str, str]:
    return {
        "step_time_s": context.say("choose.axis_step"), "relative_error": context.say("choose.axis_error"),
        "tokens_per_s": context.say("choose.axis_tokens"), "memory": context.say("choose.axis_memory"),
        "mfu": context.say("choose.axis_mfu"),
        "cost_per_step": context.say("choose.axis_cost"),
    }  # fmt: skip


async def _draw_plans(context: PageContext, table: Mapping[str, Any], asked: Asked) -> None:
    plans, say_ = table["plans"], context.say
    if not plans:
        ui.label(say_("choose.no_plan"))
        return
    names = _names(context)
    rows = [{"plan": plan_words(plan) or say_("choose.as_is"), **{key: plan_number(plan, key) for key in names}} for plan in plans]
    await show_sheet(context, asked)
    show_table([("plan", say_("choose.plan")), *names.items()], rows, say_("choose.plans"), _picker(context, plans))


def plan_number(plan: Mapping[str, Any], key: str) -> float | None:
    """A number of a plan, in four digits: memory in GiB, MFU and its error (in whole ones) in %, step time in s, dollars a step,
    tokens/s; None for an error that is not stated."""
    if key == "relative_error":
        return None if plan.get(key) is None else float(round(100 * plan[key]))
    value = float(plan.get(key) or 0.0)
    return float(f"{value / GIB if key == 'memory' else 100 * value if key == 'mfu' else value:.4g}")


def plan_words(plan: Mapping[str, Any]) -> str:
    """What a plan changes, in words: `tp 2, stages [0, 2 x 14, 1]`."""
    frame = [str(plan["frame"])] if plan.get("frame") else []
    sets = [str(text).partition("=") for text in plan.get("set", ())]
    return ", ".join([*frame, *(f"{short_name(path)} {_fold(value)}" for path, _, value in sets)])


def _fold(value: str) -> str:
    """A list of numbers as the terminal has it: `[0, 2 x 14, 1]`."""
    return value_text(tuple(map(int, value[1:-1].split(",")))) if _NUMBERS.fullmatch(value) else value


def _picker(context: PageContext, plans: Any) -> Any:
    """What a click on a plan does: compose opens with it."""

    def open_plan(number: int) -> None:
        arguments = job_arguments(context)
        asked = replace(
            context.question,
            job=arguments["job"],
            changes=dict(arguments.get("set") or {}) | sets_of(" ".join(plans[number]["set"])),
        )
        ui.navigate.to(context.link("compose", context.view.with_question(asked)).removeprefix("/ui"))

    return open_plan


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
