"""The section `serving`: throughput against interactivity, latencies of one server, and a step of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.base.units import parse_count, parse_time, parse_whole
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, sets_list, sets_of
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.sections.serving_rl import build_rl
from windtunnel.service.page.sheets import SHEET, show_sheet, use_sheets
from windtunnel.service.page.studies import use_looks
from windtunnel.serving.engine import ENGINES

FORMATS = ("bf16", "fp8", "nvfp4")


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    use_sheets()
    heading(context.say("serving.title"), context.say("serving.about"))
    form = Form(context, "v.")
    with card(context.say("serving.load"), context.say("serving.load_about"), "load"), ui.element("div").classes("wt-form"):
        _shared_fields(context, form)
    build_front(context, form)
    build_server(context, form)
    build_rl(context, Form(context, "r."))


def _titles() -> dict[str, str]:
    return {name: engine.title for name, engine in ENGINES.items()}


def _shared_fields(context: PageContext, form: Form) -> None:
    say_ = context.say
    model = form.text("model", say_("serving.model"), "llama3.1-8b")
    machine = form.text("on", say_("serving.on"), "h100-ib")
    form.text("isl", say_("serving.isl"), "1024", hint="1024, 200~0.5<4096")
    form.text("osl", say_("serving.osl"), "1024")
    form.text("ttft", say_("serving.ttft_limit"), hint="2", reads=parse_time)
    form.text("tpot", say_("serving.tpot_limit"), hint="0.03", reads=parse_time)
    form.text("set", say_("serving.sets"), wide=True, hint="cluster.price_per_gpu_hour=2")

    async def offer() -> None:
        model.set_autocomplete(await context.door.catalogue("models"))
        machine.set_autocomplete(await context.door.catalogue("clusters"))

    ui.timer(0.0, offer, once=True)


def _shared_arguments(form: Form) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        name: form.value(name).strip() for name in ("model", "on", "isl", "osl") if form.value(name).strip()
    }
    for name in ("ttft", "tpot"):
        if form.value(name).strip():
            arguments[name] = form.number(name) if form.number(name) is not None else form.value(name)
    return sets_list(arguments, sets_of(form.value("set")))


def _with_numbers(form: Form, arguments: dict[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Adds fields that are filled in. `fields`: field of the form -> option."""
    for name, option in fields.items():
        value = form.number(name)
        if value is not None:
            arguments[option] = int(value) if value == int(value) else value
    return arguments


def build_front(context: PageContext, form: Form) -> None:
    """Builds the card of the search of servers."""
    say_ = context.say
    with card(say_("serving.front"), say_("serving.front_about"), "front"):
        with ui.element("div").classes("wt-form"):
            form.text("most", say_("serving.most_gpus"), "2", reads=parse_whole)
            form.choice("engines", say_("serving.engines"), _titles(), ENGINES.default, many=True)
            form.choice("formats", say_("serving.formats"), FORMATS, "bf16", many=True)
            form.text("users", say_("serving.users_list"), hint="1,8,32,128")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.front_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "front-answer")

    ask_on_click(form, "front", go, lambda: asking.run(lambda: wanted_front(form)))


def wanted_front(form: Form) -> Wanted:
    """The question of the search."""
    arguments = _with_numbers(form, _shared_arguments(form), {"most": "gpus"})
    arguments |= {"engine": form.value("engines") or ENGINES.default, "weights": form.value("formats") or "bf16"}
    if users := form.value("users").replace(" ", ""):
        arguments["users"] = users
    return Wanted("serve-search", arguments, artefacts=SHEET)


def build_server(context: PageContext, form: Form) -> None:
    """Builds the card of one server and its latencies."""
    say_ = context.say
    with card(say_("serving.server"), say_("serving.server_about"), "server"):
        with ui.element("div").classes("wt-form"):
            form.choice("engine", say_("serving.engine"), _titles(), ENGINES.default)
            form.choice("weights", say_("serving.weights"), FORMATS, "bf16")
            form.text("tp", say_("serving.tp"), "1", reads=parse_whole)
            form.text("gpus", say_("serving.gpus"), hint="8", reads=parse_whole)
            form.text("concurrent", say_("serving.users"), hint="16", reads=parse_whole)
            form.text("rate", say_("serving.rate"), hint="4", reads=parse_count)
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.server_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "server-answer")

    ask_on_click(form, "server", go, lambda: asking.run(lambda: wanted_server(form)))


def wanted_server(form: Form) -> Wanted:
    """The question of one server; with a rate the loop is open, and users are left out."""
    fields = {"tp": "tp", "gpus": "gpus", "rate": "rate"} | ({} if form.number("rate") else {"concurrent": "concurrency"})
    arguments = _with_numbers(form, _shared_arguments(form), fields)
    asked = {**arguments, "engine": form.value("engine"), "weights": form.value("weights")}
    return Wanted("serve-predict", asked, artefacts=SHEET)
