"""Plain flows of `network`: when they end, the busiest links, and queues over time."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, draw_chart, show_command, show_numbers
from windtunnel.service.page.charts.links import completion_steps, link_bars, queue_lines
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import Form, ask_on_click
from windtunnel.service.page.frame import card
from windtunnel.sheet import numbers as say

ENGINES = ("closed", "flow", "packet")
CONTROLS = ("dcqcn", "dctcp", "hpcc", "swift", "timely", "none")
MOST_QUEUES, MOST_POINTS, MOST_LINKS = 8, 400, 16
"""Queues and their points that are drawn; links that are listed."""


def build_flows(context: PageContext, form: Form) -> None:
    """Builds the card."""
    say_ = context.say
    with card(say_("network.flows"), say_("network.flows_about"), "flows"):
        with ui.element("div").classes("wt-form"):
            form.text("fabric", say_("network.fabric_spec"), "fat_tree:k=4,link=400Gb/s", wide=True)
            form.text("flows", say_("network.pattern"), "incast:dst=0,senders=8,bytes=2MiB", wide=True)
            engines = {"closed": say_("network.by_form"), "flow": say_("network.by_flow"), "packet": say_("network.by_packet")}
            form.choice("network", say_("network.engine"), engines, "packet")
            form.text("cc", say_("network.control"), "dcqcn", names=CONTROLS)
            form.text("fault", say_("network.fault"), hint="spine3:down")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("network.flows_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda table, asked: _draw_flows(context, table, asked), "flows-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_flows(form)))


def wanted_flows(form: Form) -> Wanted:
    """The question of the form; with packets, queues over time come as an artefact."""
    engine = form.value("network")
    arguments: dict[str, Any] = {"fabric": form.value("fabric").strip(), "flows": form.value("flows").strip(), "network": engine}
    if fault := form.value("fault").split():
        arguments["fault"] = fault
    if engine == "packet":
        arguments["cc"] = form.value("cc").strip() or "dcqcn"
    return Wanted("flows", arguments, artefacts=(*PAGE, "series") if engine == "packet" else PAGE)


def read_queues(text: str, most: int = MOST_QUEUES) -> dict[str, list[tuple[float, float]]]:
    """Queues over time (s, bytes) from a table of `--series`: those of the links with the longest, thinned."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row.get("quantity") == "queue_B":
            found.setdefault(str(row["of"]), []).append((float(row["time_s"]), float(row["value"])))
    longest = sorted(found, key=lambda link: -max(value for _, value in found[link]))[:most]
    kept = {link: found[link] for link in longest if max(value for _, value in found[link]) > 0}
    return {link: points[:: max(1, len(points) // MOST_POINTS)] for link, points in kept.items()}


async def _draw_flows(context: PageContext, table: Mapping[str, Any], asked: Asked) -> None:
    say_, times, stats = context.say, table["fct_s"], table.get("stats") or {}
    facts = [(say_("network.took"), say.seconds(table["makespan_s"])), (say_("network.half"), say.seconds(times["p50"])),
             (say_("network.p99"), say.seconds(times["p99"]))]  # fmt: skip
    if table["network"] == "packet":
        facts += [(say_("network.marks"), f"{stats.get('ecn_marks', 0):,}"),
         (say_("network.pauses"), f"{stats.get('pfc_pauses', 0):,}"),
                  (say_("network.drops"), f"{stats.get('drops', 0):,}")]  # fmt: skip
    show_numbers(facts)
    with ui.element("div").classes("wt-two"):
        if table.get("flows"):
            with ui.element("div"):
                ui.html(say_("network.ends"), tag="h3", sanitize=False)
                names = (say_("network.ms"), say_("network.share"))
                draw_chart(completion_steps(table["flows"], names), say_("network.ends"), 300)
        with ui.element("div"):
            ui.html(say_("network.busiest"), tag="h3", sanitize=False)
            draw_chart(link_bars(table["links"][:MOST_LINKS], say_("network.load")), say_("network.busiest"), 300)
    series = await context.door.artefact(asked.key, "series") if "series" in asked.artefacts else None
    if series is not None:
        queues = read_queues(series[0].decode("utf-8", "replace"))
        ui.html(say_("network.queues"), tag="h3", sanitize=False)
        if queues:
            draw_chart(queue_lines(queues, (say_("network.us"), say_("network.kb"))), say_("network.queues"), 340)
        else:
            ui.label(say_("network.no_queue")).classes("wt-soft")
    show_command(context, asked.command, asked.key)
