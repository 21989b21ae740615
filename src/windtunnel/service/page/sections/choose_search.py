"""The search of `choose`: its space, and the plans while it goes on; a click on one opens it in compose."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nicegui import ui

from windtunnel.base.units import parse_time
from windtunnel.search.change import short_name, value_text
from windtunnel.search.options import SearchCommandOptions
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import Asking, Wanted, show_table
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, read_percent, sets_list, sets_of
from windtunnel.service.page.figures import GIB
from windtunnel.service.page.frame import card
from windtunnel.service.page.sheets import SHEET, show_sheet
from windtunnel.service.page.studies import job_arguments

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
