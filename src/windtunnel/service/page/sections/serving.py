"""The section `serving`: throughput against interactivity, latencies of one server, replicas behind a router, and a step of
reinforcement learning: its phases over time, who waits, and what each holds in memory.
"""

from __future__ import annotations

from typing import Any

from nicegui import ui

from windtunnel.rl.options import RLPredictOptions
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click, sets_list, sets_of
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.studies import SHEET, show_sheet, use_looks, use_sheets
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.options import ServeFleetOptions, ServeOptions, ServeSearchOptions
from windtunnel.serving.routing import ROUTERS

EXAMPLE = """workload = "rl"
name = "math-7b"
model = "qwen2.5-7b"

[cluster]
base = "h100-ib"
gpus = 8

[rl]
algorithm = "grpo"
prompts = 64
samples = 8
prompt = "200~0.5<1024"
response = "600~1<2048"
"""
JOB, SCRIPT, TABLES, LOG = "job.toml", "run.sh", "job.yaml", "console.log"


def build_rl(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    with card(say_("serving.rl"), say_("serving.rl_about"), "rl"):
        with ui.element("div").classes("wt-form"):
            form.lines("job", say_("serving.rl_job"), EXAMPLE)
            form.option("on", say_("serving.rl_on"), hint="h100-ib")
            form.text("set", say_("serving.sets"), wide=True, hint="rl.mode=async rl.rollout.gpus=4 cluster.gpus=16")
            log = form.lines("log", say_("serving.rl_log"), hint="step:1 - timing_s/gen:98.4 - timing_s/step:181.0", kept=False)
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.rl_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "rl-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_step(form, str(log.value or ""))))


def wanted_step(form: Form, log: str = "") -> Wanted:
    """The question of the form: its text becomes a file of the name that its content asks for. `log`: text of a console log, whose
    phases stand beside predicted ones."""
    text = form.value("job").strip() + "\n"
    name = file_name(text)
    arguments = {"job": name, **form.arguments("on")}
    if sets := sets_of(form.value("set")):
        arguments["set"] = sets
    files = {name: text}
    if log.strip():
        arguments["log"], files[LOG] = LOG, log.strip() + "\n"
    return Wanted("rl-predict", arguments, files, SHEET)


def file_name(text: str) -> str:
    """The name of a file with this text: a job, a launch script, or a YAML of a trainer."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if any(line.startswith("[") or line.replace(" ", "").startswith("workload=") for line in lines):
        return JOB
    if text.startswith("#!") or any(word in text for word in ("python", "ray ", "trl ", "--")):
        return SCRIPT
    return TABLES


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    use_sheets()
    heading(context.say("serving.title"), context.say("serving.about"))
    form = Form(context, "v.", ServeOptions)
    with card(context.say("serving.load"), context.say("serving.load_about"), "load"), ui.element("div").classes("wt-form"):
        _shared_fields(context, form)
    build_front(context, form)
    build_server(context, form)
    build_fleet(context, form)
    build_rl(context, Form(context, "r.", RLPredictOptions))


def _titles() -> dict[str, str]:
    return {name: engine.title for name, engine in ENGINES.items()}


def _shared_fields(context: PageContext, form: Form) -> None:
    say_ = context.say
    model = form.option("model", say_("serving.model"))
    machine = form.option("on", say_("serving.on"))
    form.option("isl", say_("serving.isl"), hint="1024, 200~0.5<4096")
    form.option("osl", say_("serving.osl"))
    form.option("ttft", say_("serving.ttft_limit"), hint="2")
    form.option("tpot", say_("serving.tpot_limit"), hint="0.03")
    form.text("set", say_("serving.sets"), wide=True, hint="cluster.price_per_gpu_hour=2")

    async def offer() -> None:
        model.set_autocomplete(await context.door.catalogue("models"))
        machine.set_autocomplete(await context.door.catalogue("clusters"))

    ui.timer(0.0, offer, once=True)


def _shared_arguments(form: Form, *names: str) -> dict[str, Any]:
    return sets_list(form.arguments("model", "on", "isl", "osl", "ttft", "tpot", *names), sets_of(form.value("set")))


def build_front(context: PageContext, form: Form) -> None:
    """Builds the card of the search of servers."""
    say_ = context.say
    with card(say_("serving.front"), say_("serving.front_about"), "front"):
        with ui.element("div").classes("wt-form"):
            search = ServeSearchOptions
            form.option("gpus", say_("serving.most_gpus"), name="most", options=search, first="2")
            form.option("engine", say_("serving.engines"), name="engines", options=search, titles=_titles())
            form.option("weights", say_("serving.formats"), name="formats", options=search)
            form.option("users", say_("serving.users_list"), options=search, hint="1,8,32,128")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.front_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "front-answer")

    ask_on_click(form, "front", go, lambda: asking.run(lambda: wanted_front(form)))


def wanted_front(form: Form) -> Wanted:
    """The question of the search."""
    return Wanted("serve-search", _shared_arguments(form, "most", "engines", "formats", "users"), artefacts=SHEET)


def build_server(context: PageContext, form: Form) -> None:
    """Builds the card of one server and its latencies."""
    say_ = context.say
    with card(say_("serving.server"), say_("serving.server_about"), "server"):
        with ui.element("div").classes("wt-form"):
            form.option("engine", say_("serving.engine"), titles=_titles())
            form.option("weights", say_("serving.weights"))
            form.option("tp", say_("serving.tp"), first="1")
            form.option("gpus", say_("serving.gpus"), hint="8")
            form.option("concurrency", say_("serving.users"), name="concurrent", hint="16")
            form.option("rate", say_("serving.rate"), hint="4")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.server_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "server-answer")

    ask_on_click(form, "server", go, lambda: asking.run(lambda: wanted_server(form)))


def wanted_server(form: Form) -> Wanted:
    """The question of one server; with a rate the loop is open, and users are left out."""
    users = () if form.number("rate") else ("concurrent",)
    return Wanted("serve-predict", _shared_arguments(form, "tp", "gpus", "rate", *users, "engine", "weights"), artefacts=SHEET)


FLEET = {
    "replicas": ("f_replicas", ""), "engine": ("f_engine", ""), "weights": ("f_weights", ""), "tp": ("f_tp", ""),
    "users": ("f_users", ""), "rate": ("f_rate", "20"), "curve": ("f_curve", "swing=0.6"), "turns": ("f_turns", "5"),
    "shared_prefix": ("f_prefix", "2000:0.5"), "router": ("f_router", ""), "prefill": ("f_prefill", "tp=2"),
    "mtbf": ("f_mtbf", "200"), "autoscale": ("f_autoscale", "2-20"),
}  # fmt: skip
"""Option of the replicas -> its field in the address, and an example."""


def build_fleet(context: PageContext, form: Form) -> None:
    """Builds the card of replicas behind a router."""
    say_ = context.say
    with card(say_("serving.fleet"), say_("serving.fleet_about"), "fleet"):
        with ui.element("div").classes("wt-form"):
            titles = {"engine": _titles(), "router": {name: name for name in ROUTERS}}
            for option, (name, hint) in FLEET.items():
                form.option(
                    option, say_(f"serving.{name}"), name=name, options=ServeFleetOptions, hint=hint, titles=titles.get(option, {}),
                    first={"tp": "1", "users": "100"}.get(option),
                )  # fmt: skip
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("serving.fleet_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "fleet-answer")

    ask_on_click(form, "fleet", go, lambda: asking.run(lambda: wanted_fleet(form)))


def wanted_fleet(form: Form) -> Wanted:
    """The question of replicas behind a router; with a rate the loop is open, and users are left out."""
    named = [name for option, (name, _) in FLEET.items() if option != "users" or not form.number("f_rate")]
    return Wanted("serve-fleet", _shared_arguments(form, *named), artefacts=SHEET)
