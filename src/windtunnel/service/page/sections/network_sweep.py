"""Collectives of `network`: a sweep over sizes beside a pasted log of nccl-tests, and the links while one call runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from windtunnel.base.errors import WindtunnelError
from windtunnel.base.units import parse_whole
from windtunnel.service.door import Asked
from windtunnel.service.page.asking import PAGE, Asking, Wanted, draw_chart, show_command, show_numbers, show_table
from windtunnel.service.page.charts.links import load_heat, sweep_lines
from windtunnel.service.page.context import PageContext, error_of
from windtunnel.service.page.fields import Form, ask_on_click
from windtunnel.service.page.frame import card, show_error
from windtunnel.sheet import numbers as say

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "reduce", "gather", "scatter")
LOG = "nccl.log"


def build_sweep(context: PageContext, form: Form) -> None:
    """Builds the card of the sweep."""
    say_ = context.say
    with card(say_("network.sweep"), say_("network.sweep_about"), "sweep"):
        with ui.element("div").classes("wt-form"):
            _machine_fields(context, form)
            form.text("bytes", say_("network.bytes"), "1M:8G:4", hint="1M:8G:4")
            form.text("env", say_("network.env"), hint="NCCL_ALGO=Ring")
            log = form.lines("log", say_("network.log"), hint=say_("network.log_hint"), kept=False)
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("network.sweep_go"), color=None).props("unelevated").classes("wt-go")
        measured: list[Mapping[str, Any]] = []
        asking = Asking(context, lambda table, asked: _draw_sweep(context, table, measured, asked), "sweep-answer")
        problem = ui.element("div")

    async def ask() -> None:
        problem.clear()
        measured.clear()
        if text := str(log.value or "").strip():
            try:
                read = await context.ask("import", {"paths": [LOG]}, {LOG: text + "\n"})
                measured.extend(json.loads(read.bytes).get("calls", ()))
            except WindtunnelError as error:
                with problem:
                    show_error(context, error_of(error))
        await asking.run(lambda: wanted_calls(form))

    ask_on_click(form, "run", go, ask)


def _machine_fields(context: PageContext, form: Form) -> None:
    cluster = form.text("cluster", context.say("network.cluster"), "h100-ib")

    async def offer() -> None:
        cluster.set_autocomplete(await context.door.catalogue("clusters"))

    ui.timer(0.0, offer, once=True)
    form.choice("op", context.say("network.op"), CALLS, "all_reduce")
    form.text("gpus", context.say("network.ranks"), "16", reads=parse_whole)


def wanted_calls(form: Form, network: str = "closed", artefacts: Sequence[str] = PAGE) -> Wanted:
    """The question of a form of collectives."""
    arguments: dict[str, Any] = {
        "cluster": form.value("cluster").strip(),
        "op": form.value("op"),
        "bytes": form.value("bytes").strip(),
    }
    gpus = form.number("gpus")
    arguments["gpus"] = int(gpus) if gpus is not None and gpus == int(gpus) else form.value("gpus")
    if env := form.value("env").split():
        arguments["env"] = env
    if fault := form.value("fault").split():
        arguments["fault"] = fault
    return Wanted("collective", {**arguments, "network": network}, artefacts=artefacts)


def match_calls(table: Mapping[str, Any], measured: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Measured calls of the predicted kind: size, busbw_GBs, and the error of the prediction where it has this size."""
    rows = {float(row["size"]): row for row in table["rows"]}
    first = next((row for row in table["rows"] if row["algbw_GBs"]), None)
    factor = first["busbw_GBs"] / first["algbw_GBs"] if first is not None else 1.0
    found = []
    for call in measured:
        fits = call["op"] == table["op"] and call["ranks"] in (0, table["gpus"]) and not call["in_place"]
        if fits and call["seconds"] > 0:
            row = rows.get(float(call["size"]))
            error = None if row is None else row["time_us"] * 1e-6 / call["seconds"] - 1
            found.append({"size": call["size"], "busbw_GBs": factor * call["size"] / call["seconds"] / 1e9, "error": error})
    return found


def _draw_sweep(context: PageContext, table: Mapping[str, Any], measured: Sequence[Mapping[str, Any]], asked: Asked) -> None:
    say_, rows = context.say, table["rows"]
    points = match_calls(table, measured)
    names = {"x": say_("network.size"), "y": say_("network.busbw"), "predicted": say_("network.predicted"),
             "measured": say_("network.measured")}  # fmt: skip
    if measured and not points:
        ui.label(say_("network.no_match", op=table["op"], gpus=table["gpus"])).classes("wt-soft")
    errors = [abs(one["error"]) for one in points if one["error"] is not None]
    if errors:
        mean, worst = say.percent(sum(errors) / len(errors)), say.percent(max(errors))
        ui.label(say_("network.errors", count=len(errors), mean=mean, worst=worst))
    draw_chart(sweep_lines(rows, [(one["size"], one["busbw_GBs"]) for one in points], names), say_("network.sweep"), 360)
    by_size = {one["size"]: one for one in points}
    columns = [("size", say_("network.size")), ("time", say_("network.time")), ("busbw", say_("network.busbw")),
               ("error", "±"), ("how", say_("network.how"))]  # fmt: skip
    if points:
        columns += [("measured", say_("network.measured_busbw")), ("off", say_("network.off"))]
    shown = []
    for row in rows:
        found = by_size.get(row["size"])
        how = ", ".join(str(row[key]) for key in ("algorithm", "protocol") if row.get(key))
        shown.append({
            "size": say.size(row["size"]), "time": round(row["time_us"], 2), "busbw": round(row["busbw_GBs"], 2),
            "error": say.percent(row.get("relative_error") or 0.0), "how": how,
            "measured": round(found["busbw_GBs"], 2) if found else None,
            "off": f"{100 * found['error']:+.1f} %" if found and found["error"] is not None else None,
        })  # fmt: skip
    show_table(columns, shown, say_("network.sweep"))
    show_command(context, asked.command, asked.key)


def build_fabric(context: PageContext, form: Form) -> None:
    """Builds the card of the fabric: drawn by the verb's own page, with the load of levels over time beside."""
    say_ = context.say
    with card(say_("network.fabric"), say_("network.fabric_about"), "fabric"):
        with ui.element("div").classes("wt-form"):
            _machine_fields(context, form)
            form.text("bytes", say_("network.one_size"), "64M")
            engines = {"flow": say_("network.by_flow"), "packet": say_("network.by_packet")}
            form.choice("network", say_("network.engine"), engines, "flow")
            form.text("fault", say_("network.fault"), hint="leaf0.3--spine*:slow=0.5")
        with ui.element("div").classes("wt-buttons"):
            go = ui.button(say_("network.fabric_go"), color=None).props("unelevated").classes("wt-go")
        asking = Asking(context, lambda table, asked: _draw_fabric(context, table, asked), "fabric-answer")

    ask_on_click(form, "run", go, lambda: asking.run(lambda: wanted_calls(form, form.value("network"), ("html",))))


def _draw_fabric(context: PageContext, table: Mapping[str, Any], asked: Asked) -> None:
    say_, traffic = context.say, table.get("traffic")
    if not traffic:
        ui.label(say_("network.no_traffic")).classes("wt-soft")
        return
    hottest = max((one["utilisation"] for one in traffic["hot"]), default=0.0)
    show_numbers([
        (say_("network.took"), say.seconds(traffic["seconds"])), (say_("network.links"), f"{traffic['links']:,}"),
        (say_("network.switches"), f"{traffic['switches']:,}"), (say_("network.hottest"), say.percent(hottest)),
    ])  # fmt: skip
    if "html" in asked.artefacts:
        frame = ui.element("iframe").classes("wt-frame").props("sandbox=allow-scripts")
        frame.props(f'src="/ui/shown/{asked.key}/html" title="{say_("network.fabric")}"')
    over = traffic.get("over_time")
    if over:
        ui.html(say_("network.levels"), tag="h3", sanitize=False)
        levels = {one["name"]: values for one, values in zip(traffic["levels"], over["fullest"], strict=False)}
        draw_chart(load_heat(levels, over["width"], say_("network.since")), say_("network.levels"), 130 + 22 * len(levels))
        ui.html(say_("network.hot"), tag="h3", sanitize=False)
        hot = {one["name"]: values for one, values in zip(traffic["hot"], over["hot"], strict=False)}
        draw_chart(load_heat(hot, over["width"], say_("network.since")), say_("network.hot"), 130 + 20 * min(24, len(hot)))
    show_command(context, asked.command, asked.key)
