"""Plain flows of `network`: when they end, the busiest links, and queues over time."""

from __future__ import annotations

from nicegui import ui

from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click
from windtunnel.service.page.frame import card
from windtunnel.service.page.sheets import SHEET, show_sheet

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
