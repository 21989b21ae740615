"""The section `network`: collectives beside measured ones, the fabric with the load of its links, and queues of plain flows.

Collectives are a sweep over sizes beside a pasted log of nccl-tests, and the links while one call runs; plain flows when they end,
the busiest links, and queues over time.
"""

from __future__ import annotations

from nicegui import ui

from windtunnel.network.flows.options import FlowsCommandOptions
from windtunnel.network.options import CollectiveCommandOptions
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click
from windtunnel.service.page.frame import card, heading
from windtunnel.service.page.studies import SHEET, show_sheet, use_looks, use_sheets

CONTROLS = ("dcqcn", "dctcp", "hpcc", "swift", "timely", "none")


def build_flows(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    with card(say_("network.flows"), say_("network.flows_about"), "flows"):
        with ui.element("div").classes("wt-form"):
            form.option("fabric", say_("network.fabric_spec"), first="fat_tree:k=4,link=400Gb/s", wide=True)
            form.option("flows", say_("network.pattern"), first="incast:dst=0,senders=8,bytes=2MiB", wide=True)
            engines = {"closed": say_("network.by_form"), "flow": say_("network.by_flow"), "packet": say_("network.by_packet")}
            form.option("network", say_("network.engine"), titles=engines, first="packet")
            form.option("cc", say_("network.control"), names=CONTROLS)
            form.option("fault", say_("network.fault"), hint="spine3:down")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("network.flows_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "flows-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_flows(form)))


def wanted_flows(form: Form) -> Wanted:
    """The question of the form; with packets it has queues over time, which a run has whose series is asked for."""
    engine = form.value("network")
    arguments = form.arguments("fabric", "flows", "network", *(("cc",) if engine == "packet" else ()))
    if fault := form.value("fault").split():
        arguments["fault"] = fault
    return Wanted("flows", arguments, artefacts=(*SHEET, "series") if engine == "packet" else SHEET)


LOG = "nccl.log"


def build_sweep(context: PageContext, form: Form) -> None:
    """Builds the card of the sweep."""
    say_ = context.say
    with card(say_("network.sweep"), say_("network.sweep_about"), "sweep"):
        with ui.element("div").classes("wt-form"):
            _machine_fields(context, form)
            form.option("bytes", say_("network.bytes"), first="1M:8G:4", hint="1M:8G:4")
            form.option("env", say_("network.env"), hint="NCCL_ALGO=Ring")
            log = form.lines("log", say_("network.log"), hint=say_("network.log_hint"), kept=False)
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("network.sweep_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "sweep-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_calls(form, log=str(log.value or ""))))


def _machine_fields(context: PageContext, form: Form) -> None:
    cluster = form.option("cluster", context.say("network.cluster"), first="h100-ib")

    async def offer() -> None:
        cluster.set_autocomplete(await context.door.catalogue("clusters"))

    ui.timer(0.0, offer, once=True)
    form.option("op", context.say("network.op"))
    form.option("gpus", context.say("network.ranks"), first="16")


def wanted_calls(form: Form, network: str = "closed", log: str = "") -> Wanted:
    """The question of a form of collectives. `log`: text of a log whose calls stand beside them."""
    arguments = form.arguments("cluster", "op", "bytes", "gpus")
    if env := form.value("env").split():
        arguments["env"] = env
    if fault := form.value("fault").split():
        arguments["fault"] = fault
    if log.strip():
        arguments["measured"] = [LOG]
    files = {LOG: log.strip() + "\n"} if log.strip() else {}
    return Wanted("collective", {**arguments, "network": network}, files, SHEET)


def build_fabric(context: PageContext, form: Form) -> None:
    """Builds the card of the fabric and the load of its links over time."""
    say_ = context.say
    with card(say_("network.fabric"), say_("network.fabric_about"), "fabric"):
        with ui.element("div").classes("wt-form"):
            _machine_fields(context, form)
            form.option("bytes", say_("network.one_size"), first="64M")
            engines = {"flow": say_("network.by_flow"), "packet": say_("network.by_packet")}
            form.option("network", say_("network.engine"), titles=engines, first="flow")
            form.option("fault", say_("network.fault"), hint="leaf0.3--spine*:slow=0.5")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("network.fabric_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda _, asked: show_sheet(context, asked), "fabric-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_calls(form, form.value("network"))))


def build(context: PageContext) -> None:
    """Builds the section into the page."""
    use_looks()
    use_sheets()
    heading(context.say("network.title"), context.say("network.about"))
    build_sweep(context, Form(context, "c.", CollectiveCommandOptions))
    build_fabric(context, Form(context, "l.", CollectiveCommandOptions))
    build_flows(context, Form(context, "f.", FlowsCommandOptions))
