"""The search of `choose`: its space, the plans while it goes on, plans as lines, and the certificate in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nicegui import ui

from windtunnel.base.units import parse_time
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, draw_chart, show_command, show_numbers, show_table
from windtunnel.service.page.charts.plans import front_scatter, parallel_plans, plan_number, plan_words, space_bars
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, read_percent, sets_list, sets_of
from windtunnel.service.page.frame import card
from windtunnel.service.page.studies import job_arguments
from windtunnel.sheet import numbers as say

OBJECTIVES = ("time", "tokens", "dollars", "energy", "memory")
ROUNDS = (2.0, 10.0, 60.0)
"""Seconds of predictions of the rounds before the last, which has no other limit than the reader's: each shows its best plans."""


def build_search(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    with card(say_("choose.search"), say_("choose.search_about"), "search"):
        with ui.element("div").classes("wt-form"):
            form.text("on", say_("choose.on"), hint="h100-ib, b200-ib")
            form.text("gpus", say_("choose.gpus"), hint="256, 512")
            form.choice("objective", say_("choose.objective"), _objectives(context), "time", many=True)
            form.text("margin", say_("choose.margin"), hint="5.5", reads=read_percent)
            form.text("gap", say_("choose.gap"), "0", reads=read_percent)
            form.text("limit", say_("choose.limit"), hint="60", reads=parse_time)
            form.text("set", say_("choose.ranges"), wide=True, hint="plan.tp=4,8 runtime.overlap_tp=true,false")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("choose.go"), color=None).props("unelevated").classes("wt-go")
            look = ui.button(say_("choose.show_space"), color=None).props("flat").classes("wt-other")
        space = Asking(context, lambda table, _: _draw_space(context, table), "space")
        found = Asking(context, lambda table, asked: _draw_plans(context, form, table, asked), "plans")

    async def search() -> None:
        longest = form.number("limit")
        for most in (*(seconds for seconds in ROUNDS if seconds < (longest or math.inf)), longest):
            asked = await found.run(partial(wanted_search, context, form, most))
            if asked is None or _is_final(asked):
                return

    async def show_space() -> None:
        await context.keep_typed()
        await space.run(lambda: wanted_search(context, form, None, only_space=True))

    ask_on_click(form, "run", go, search)
    look.on_click(show_space)


def _objectives(context: PageContext) -> dict[str, str]:
    return {
        "time": context.say("choose.by_time"), "tokens": context.say("choose.by_tokens"),
        "dollars": context.say("choose.by_dollars"),
        "energy": context.say("choose.by_energy"), "memory": context.say("choose.by_memory"),
    }  # fmt: skip


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
        return Wanted("search", {**arguments, "dry-run": True}, files)
    arguments["objective"] = form.value("objective") or "time"
    margin, gap = form.number("margin"), form.number("gap")
    if margin is not None:
        arguments["margin"] = margin / 100
    if gap:
        arguments["gap"] = gap / 100
    if most is not None:
        arguments["limit"] = most
    return Wanted("search", {**arguments, "top": 40}, files, PAGE)


def _draw_space(context: PageContext, table: Mapping[str, Any]) -> None:
    ui.html(context.say("choose.space"), tag="h3", sanitize=False)
    frames = len(table["frames"]) or 1
    ui.label(context.say("choose.combinations", count=f"{table['combinations']:,}", frames=frames)).classes("wt-soft")
    fields = dict(table["fields"])
    if table["frames"]:
        fields[context.say("choose.machines")] = table["frames"]
    if fields:
        draw_chart(space_bars(fields, context.say("choose.values")), context.say("choose.space"), 110 + 26 * len(fields))


def _names(context: PageContext) -> dict[str, str]:
    return {
        "step_time_s": context.say("choose.axis_step"), "tokens_per_s": context.say("choose.axis_tokens"),
        "memory": context.say("choose.axis_memory"), "mfu": context.say("choose.axis_mfu"),
        "cost_per_step": context.say("choose.axis_cost"),
    }  # fmt: skip


def _draw_plans(context: PageContext, form: Form, table: Mapping[str, Any], asked: Asked) -> None:
    plans = table["plans"]
    if not plans:
        ui.label(context.say("choose.no_plan"))
        return
    best, names, front = plans[0], _names(context), int(table.get("front") or 1)
    say_ = context.say
    show_numbers([
        (say_("choose.axis_step"), f"{best['step_time_s']:.4g}"), (say_("choose.axis_mfu"), f"{100 * best['mfu']:.1f}"),
        (say_("choose.axis_memory"), f"{best['memory'] / 1e9:.1f}"), (say_("choose.axis_tokens"), f"{best['tokens_per_s']:,.0f}"),
        (say_("choose.best"), plan_words(best) or say_("choose.as_is")),
    ])  # fmt: skip
    with ui.element("ul").classes("wt-sentences"):
        for sentence in certificate_words(context, table):
            with ui.element("li"):
                ui.label(sentence)
    several = len({one for one in table["objectives"]} & {"dollars"}) > 0 or bool(table["machines"])
    y = "cost_per_step" if several else "memory"
    with ui.element("div").classes("wt-two"):
        with ui.element("div"):
            ui.html(say_("choose.front"), tag="h3", sanitize=False)
            pick = _picker(context, plans)
            draw_chart(front_scatter(plans, "step_time_s", y, names, front), say_("choose.front"), 320,
                       lambda event: pick(_row_of_event(event)))  # fmt: skip
        with ui.element("div"):
            ui.html(say_("choose.parallel"), tag="h3", sanitize=False)
            shown = {"step_time_s": say_("choose.short_step"), "memory": say_("choose.short_memory")}
            draw_chart(parallel_plans(plans, shown, front), say_("choose.parallel"), 320)
    rows = [
        {"plan": plan_words(one) or say_("choose.as_is"), **{key: float(f"{plan_number(one, key):.4g}") for key in names}}
        for one in plans
    ]
    show_table([("plan", say_("choose.plan")), *names.items()], rows, say_("choose.plans"), pick)
    show_command(context, asked.command, asked.key)


def _row_of_event(event: Any) -> int:
    data = event.data if isinstance(event.data, dict) else {}
    return int(data.get("plan", 0))


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


def certificate_words(context: PageContext, table: Mapping[str, Any]) -> list[str]:
    """What became of the plans, how much better one could be, and what decided."""
    of, words = table["certificate"], []
    facts = {
        key: f"{of[key]:,}" for key in ("combinations", "plans", "refused", "too_large", "ruled_out", "predicted", "did_not_fit")
    }
    words.append(context.say("choose.looked", **facts))
    if of["exact"] or not of["open"]:
        words.append(context.say("choose.front_proved" if len(table["objectives"]) > 1 else "choose.proved"))
    else:
        words.append(context.say("choose.open", count=f"{of['open']:,}", gap=say.percent(of["gap"], 2)))
    explained = next(iter(table["explanations"]), None)
    for one in (explained or {}).get("decisions", ())[:3]:
        name, loss = one["path"].removeprefix("plan.").removeprefix("runtime."), say.percent(one["loss"])
        words.append(context.say("choose.decided", field=name, value=one["value"], other=one["other"], loss=loss))
    own = (explained or {}).get("your_plan")
    if own and own["loss"] > 0.0005:
        words.append(context.say("choose.own", loss=say.percent(own["loss"])))
    return words
