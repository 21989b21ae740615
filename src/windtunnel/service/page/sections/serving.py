"""The section `serving`: throughput against interactivity, latencies of one server, and a step of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.base.units import parse_count, parse_time, parse_whole
from windtunnel.report.words import numbers as say
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, draw_chart, show_command, show_numbers, show_table
from windtunnel.service.page.charts.served import choice_words, latency_bars, serve_scatter
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, sets_list, sets_of
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.sections.serving_rl import build_rl
from windtunnel.service.page.studies import use_looks
from windtunnel.service.questions.question import ask_question

ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
FORMATS = ("bf16", "fp8", "nvfp4")


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    heading(context.say("serving.title"), context.say("serving.about"))
    form = Form(context, "v.")
    with card(context.say("serving.load"), context.say("serving.load_about"), "load"), ui.element("div").classes("wt-form"):
        _shared_fields(context, form)
    build_front(context, form)
    build_server(context, form)
    build_rl(context, Form(context, "r."))


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
            form.choice("engines", say_("serving.engines"), ENGINES, "vllm", many=True)
            form.choice("formats", say_("serving.formats"), FORMATS, "bf16", many=True)
            form.text("users", say_("serving.users_list"), hint="1,8,32,128")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.front_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda table, asked: _draw_front(context, form, table, asked), "front-answer")

    ask_on_click(form, "front", go, lambda: asking.run(lambda: wanted_front(form)))


def wanted_front(form: Form) -> Wanted:
    """The question of the search."""
    arguments = _with_numbers(form, _shared_arguments(form), {"most": "gpus"})
    arguments |= {"engine": form.value("engines") or "vllm", "weights": form.value("formats") or "bf16"}
    if users := form.value("users").replace(" ", ""):
        arguments["users"] = users
    return Wanted("serve-search", arguments, artefacts=PAGE)


def point_command(form: Form, choice: Mapping[str, Any]) -> str:
    """The command line of a point: what `serve-predict` says of it alone."""
    plan, formats = choice["plan"], choice["formats"]
    prefill = choice.get("prefill")
    arguments = _shared_arguments(form) | {name: plan[name] for name in ("tp", "pp", "dp", "ep")}
    arguments |= {"engine": choice["engine"], "weights": formats["weights"], "kv": formats["kv"], "concurrency": choice["users"],
                  "requests": choice["requests"], "gpus": choice["gpus"]}  # fmt: skip
    if prefill:
        arguments["prefill"] = f"gpus={prefill['gpus']},tp={prefill['plan']['tp']}"
    return ask_question("serve-predict", arguments).command


def _draw_front(context: PageContext, form: Form, table: Mapping[str, Any], asked: Asked) -> None:
    say_, front, best = context.say, table["front"], table.get("best")
    if not front:
        ui.label(table.get("nearest") or say_("serving.nothing"))
        return
    names = {"x": say_("serving.per_user"), "y": say_("serving.per_gpu"), "front": say_("serving.front_name"),
             "best": say_("serving.best_name")}  # fmt: skip
    if best is not None:
        show_numbers([
            (say_("serving.best_name"), choice_words(best)), (names["y"], f"{best['throughput']:,.0f}"),
            (names["x"], f"{best['interactivity']:,.1f}"), (say_("serving.dollars"), f"{best['dollars_per_million_tokens']:.3g}"),
        ])  # fmt: skip
    else:
        ui.label(table.get("nearest") or say_("serving.nothing"))

    def pick(number: int) -> None:
        choice = best if number < 0 and best is not None else front[max(0, number)]
        point.clear()
        with point:
            ui.label(say_("serving.point", what=choice_words(choice), ttft=say.seconds(choice["ttft"]["mean"]),
                          tpot=say.seconds(choice["tpot"]["mean"])))  # fmt: skip
            show_command(context, point_command(form, choice))

    def show_point(event: Any) -> None:
        pick(int(event.data.get("choice", -1)) if isinstance(event.data, dict) else -1)

    draw_chart(serve_scatter(front, best, names), say_("serving.front"), 380, show_point)
    point = ui.element("div").props('role="status" id="point"')
    pick(-1 if best is not None else 0)
    columns = [("choice", say_("serving.choice")), ("throughput", names["y"]), ("interactivity", names["x"]),
               ("ttft", say_("serving.ttft_ms")), ("tpot", say_("serving.tpot_ms")),
               ("dollars", say_("serving.dollars"))]  # fmt: skip
    rows = [
        {"choice": choice_words(one), "throughput": round(one["throughput"]), "interactivity": round(one["interactivity"], 1),
         "ttft": round(1e3 * one["ttft"]["mean"], 1), "tpot": round(1e3 * one["tpot"]["mean"], 2),
         "dollars": round(one["dollars_per_million_tokens"], 3)}
        for one in front
    ]  # fmt: skip
    show_table(columns, rows, say_("serving.front_name"), pick)
    ui.label(
        say_("serving.tried", asked=f"{table['asked']:,}", simulated=f"{table['simulated']:,}", unfit=f"{table['unfit']:,}")
    ).classes("wt-soft wt-small")
    show_command(context, asked.command, asked.key)


def build_server(context: PageContext, form: Form) -> None:
    """Builds the card of one server and its latencies."""
    say_ = context.say
    with card(say_("serving.server"), say_("serving.server_about"), "server"):
        with ui.element("div").classes("wt-form"):
            form.choice("engine", say_("serving.engine"), ENGINES, "vllm")
            form.choice("weights", say_("serving.weights"), FORMATS, "bf16")
            form.text("tp", say_("serving.tp"), "1", reads=parse_whole)
            form.text("gpus", say_("serving.gpus"), hint="8", reads=parse_whole)
            form.text("concurrent", say_("serving.users"), hint="16", reads=parse_whole)
            form.text("rate", say_("serving.rate"), hint="4", reads=parse_count)
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.server_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda table, asked: _draw_server(context, form, table, asked), "server-answer")

    ask_on_click(form, "server", go, lambda: asking.run(lambda: wanted_server(form)))


def wanted_server(form: Form) -> Wanted:
    """The question of one server; with a rate the loop is open, and users are left out."""
    fields = {"tp": "tp", "gpus": "gpus", "rate": "rate"} | ({} if form.number("rate") else {"concurrent": "concurrency"})
    arguments = _with_numbers(form, _shared_arguments(form), fields)
    asked = {**arguments, "engine": form.value("engine"), "weights": form.value("weights")}
    return Wanted("serve-predict", asked, artefacts=PAGE)


def _draw_server(context: PageContext, form: Form, table: Mapping[str, Any], asked: Asked) -> None:
    say_, memory = context.say, table["memory"]
    show_numbers([
        (say_("serving.per_gpu"), f"{table['tokens_per_s_gpu']:,.0f}{stated_error(table, 'throughput')}"),
        (say_("serving.requests"), f"{table['requests_per_s']:.3g}"),
        (say_("serving.dollars"), f"{table['dollars_per_million_tokens']:.3g}{stated_error(table, 'dollars')}"),
        (say_("serving.cache"), f"{memory['cache'] / 1e9:.1f}"), (say_("serving.cache_peak"), say.percent(table["cache_peak"])),
        (say_("serving.batch"), f"{table['batch']:.1f}"),
    ])  # fmt: skip
    with ui.element("div").classes("wt-two"):
        for key, label in (("ttft", "serving.ttft"), ("tpot", "serving.tpot"), ("e2e", "serving.e2e")):
            with ui.element("div"):
                ui.html(say_(label) + stated_error(table, key), tag="h3", sanitize=False)
                limit = form.number(key) if key != "e2e" else None
                draw_chart(latency_bars(table[key], limit, say_("serving.seconds")), say_(label), 240)
    for note in table["notes"]:
        ui.label(note).classes("wt-soft wt-small")
    show_command(context, asked.command, asked.key)


def stated_error(table: Mapping[str, Any], figure: str) -> str:
    """The error that an answer states of a figure, to stand behind it: ` ±20 %`; nothing where it states none."""
    return say.error_words((table.get("relative_errors") or {}).get(figure))
