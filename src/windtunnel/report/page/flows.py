"""The page of plain flows: how full links are, the slowest flow with its links, completion times, the load of each level."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from markupsafe import Markup

from windtunnel.base.arrays import Floats
from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import BLUE, GREEN, ORANGE, key_line, paragraphs, say_seconds
from windtunnel.draw.page.frame import Cell
from windtunnel.network.flows.run import FlowsResult, slowest_flow
from windtunnel.report.page.fabric import colour
from windtunnel.report.page.plots import PlotAxis, PlotLine, PlotPoint, draw_plot
from windtunnel.report.page.prediction import section
from windtunnel.report.words.flows import collision_sentence, link_name, say_assumed, say_counter
from windtunnel.sheet import numbers as say

MOST_LINKS, MOST_FLOWS, MOMENTS = 14, 200, 400
"""Busiest links and slowest flows that are listed, and points of a curve."""


def write_page(result: FlowsResult, fabric: str, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `fabric`: as it was asked; `command`: shown in the footer."""
    frame.write_page(page(result, fabric, command), path)


def page(result: FlowsResult, fabric: str, command: str = "") -> str:
    """The page's text."""
    busy = _busy_shares(result)
    sections = [section("Load of links", _loads(result, busy))]
    if told := _slowest(result, busy):
        sections.append(section("The slowest flow", told))
    if np.isfinite(result.fct).any():
        sections.append(section("Completion times", _times(result)))
    if result.collisions is not None and result.collisions.links:
        sections.append(section("Hash collisions", paragraphs([collision_sentence(result, result.collisions)])))
    sections.append(section("Counters and assumptions", _counters(result)))
    graph, options = result.graph, result.options
    subtitle = (
        f"{len(result.flows):,} flows, {say.size(float(result.flows.bytes.sum()))}: {graph.endpoints:,} endpoints, "
        f"{graph.nodes:,} nodes, {graph.links:,} links",
        f"network {options.network}, routing {options.routing}, NICs {options.nic}, seed {options.seed}",
    )
    return frame.page(
        f"Flows over {say.clean(fabric)[:160]}", subtitle, _cards(result, busy), Markup().join(sections), None, command
    )


def _busy_shares(result: FlowsResult) -> Floats:
    """[L] share of the run for which a link was busy at its full rate."""
    span = result.makespan()
    return result.link_bytes / result.graph.link_rate / span if span > 0.0 else np.zeros(result.graph.links)


def _cards(result: FlowsResult, busy: Floats) -> list[tuple[str, str, str]]:
    summary, span = result.summary(), result.makespan()
    cards = [("all flows take", say.seconds(span), "")]
    cards += [(f"a flow, {name}", say.seconds(value), "") for name, value in summary.items() if name != "min" and value is not None]
    if span > 0.0:
        done = float(result.flows.bytes[np.isfinite(result.fct)].sum())
        cards.append(("together", f"{say.size(done / span)}/s", ""))
    if len(busy):
        cards.append(("the fullest link", say.percent(float(busy.max())), "bad" if busy.max() > 0.9 else ""))
    if not result.finished:
        ended = int(np.isfinite(result.fct).sum())
        cards.append(("stopped", f"{ended:,} of {len(result.fct):,} ended", "bad"))
    return cards


def _loads(result: FlowsResult, busy: Floats) -> Markup:
    """The busiest links as bars in the colours of load, and each level of the fabric as a row."""
    top = [link for link in np.argsort(-busy, kind="stable")[:MOST_LINKS].tolist() if busy[link] > 0.0]
    if not top:
        return paragraphs(["No link carries anything: no flow has bytes, or none leaves its endpoint."])
    bars = [
        {"label": link_name(result, link).replace("->", " → "), "value": say.size(float(result.link_bytes[link])),
         "share": say.percent(float(busy[link])), "width": 100.0 * min(1.0, float(busy[link])), "colour": colour(float(busy[link])),
         "title": f"{say.rate(float(result.graph.link_rate[link]))}, busy {say.percent(float(busy[link]))} of the run"}
        for link in top
    ]  # fmt: skip
    about = f"The {len(top)} busiest of {result.graph.links:,} links: bytes, and the share of the run for which each is busy."
    levels = _levels(result, busy)
    heads = [("from → to", False), ("links", True), ("bytes", True), ("load", True), ("fullest", True), ("idle links", True)]
    return paragraphs([about]) + frame.part("bars", bars) + _SPACE + frame.part("table", "levels", heads, levels)


_SPACE = Markup('<div style="height:14px"></div>')


def _levels(result: FlowsResult, busy: Floats) -> list[list[Cell]]:
    """A row for each kind of link, by the kinds of nodes at its ends, as their names say them."""
    graph = result.graph
    kinds = [re.sub(r"[\d.]+", "", graph.name(node)).strip("-_:/ ") or "node" for node in range(graph.nodes)]
    names, which = np.unique(np.array(kinds, dtype=np.str_), return_inverse=True)
    pair = which[graph.link_from] * len(names) + which[graph.link_to]
    rows: list[list[Cell]] = []
    for one in np.unique(pair).tolist():
        links = np.nonzero(pair == one)[0]
        begin, end = names[one // len(names)], names[one % len(names)]
        share, full, idle = float(busy[links].mean()), float(busy[links].max()), int(np.count_nonzero(busy[links] == 0.0))
        carried = float(result.link_bytes[links].sum())
        rows.append(
            [(f"{begin} → {end}", None), (f"{len(links):,}", float(len(links))), (say.size(carried), carried),
             (say.percent(share), share), (say.percent(full), full), (f"{idle:,}", float(idle))]
        )  # fmt: skip
    return sorted(rows, key=lambda row: -(row[4][1] or 0.0))


def _slowest(result: FlowsResult, busy: Floats) -> Markup:
    """The flow that took longest, what it would take alone, and its links in order."""
    found = slowest_flow(result)
    if found is None:
        return Markup()
    number, links = found
    flows, graph = result.flows, result.graph
    ends = [graph.name(int(graph.endpoint[int(which[number])])) for which in (flows.src, flows.dst)]
    size, took = float(flows.bytes[number]), float(result.fct[number])
    line = f"Flow {number:,}, from {ends[0]} to {ends[1]}, {say.size(size)}: {say.seconds(took)}"
    if not links:
        return paragraphs([f"{line}. Its packets choose their links one by one."])
    alone = size / float(graph.link_rate[list(links)].min())
    lines = [f"{line}, {took / alone:.2f} times as long as its bytes take on its narrowest link alone ({say.seconds(alone)})."]
    rows: list[list[Cell]] = [
        [(str(at + 1), float(at + 1)), (link_name(result, link).replace("->", " → "), None),
         (say.rate(float(graph.link_rate[link])), float(graph.link_rate[link])),
         (say.size(float(result.link_bytes[link])), float(result.link_bytes[link])),
         (say.percent(size / max(float(result.link_bytes[link]), 1.0)), size / max(float(result.link_bytes[link]), 1.0)),
         (say.percent(float(busy[link])), float(busy[link]))]
        for at, link in enumerate(links)
    ]  # fmt: skip
    heads = [("", True), ("link", False), ("rate", True), ("bytes of all flows", True), ("this flow's share", True), ("busy", True)]
    return paragraphs(lines) + frame.part("table", "slowest", heads, rows)


def _times(result: FlowsResult) -> Markup:
    """The share of flows that ended within a time, and the slowest ones as a table."""
    ended = np.nonzero(np.isfinite(result.fct))[0]
    times = np.sort(result.fct[ended])
    kept = np.unique(np.linspace(0, len(times) - 1, min(MOMENTS, len(times))).astype(int))
    curve = [(float(times[at]), 100.0 * (at + 1) / len(times)) for at in kept]
    marks = [
        PlotPoint(value, share, f"{name}: {say.seconds(value)}", shade, "square")
        for name, share, shade in (("p50", 50.0, GREEN), ("p99", 99.0, ORANGE))
        if (value := result.summary()[name]) is not None
    ]
    picture = draw_plot(
        marks, [PlotLine("flows that ended", curve, BLUE)], PlotAxis("completion time", say_seconds, least=0.0),
        PlotAxis("share of flows", lambda v: f"{v:.0f} %", least=0.0), "share of flows over completion time", 260.0,
    )  # fmt: skip
    key = key_line([("flows that ended", BLUE), ("p50", GREEN), ("p99", ORANGE)])
    flows, graph = result.flows, result.graph
    slow = ended[np.argsort(-result.fct[ended], kind="stable")[:MOST_FLOWS]].tolist()
    names = [[graph.name(int(graph.endpoint[int(which[one])])) for which in (flows.src, flows.dst)] for one in slow]
    rows: list[list[Cell]] = [
        [(f"{one:,}", float(one)), (begin, None), (end, None), (say.size(float(flows.bytes[one])), float(flows.bytes[one])),
         (say_seconds(float(flows.start[one])), float(flows.start[one])),
         (say.seconds(float(result.fct[one])), float(result.fct[one]))]
        for one, (begin, end) in zip(slow, names, strict=True)
    ]  # fmt: skip
    heads = [("flow", True), ("from", False), ("to", False), ("bytes", True), ("start", True), ("takes", True)]
    title = f"The {len(rows):,} slowest of {len(ended):,} flows"
    table = frame.part("table", "flows", heads, rows)
    return picture + key + Markup('<details style="margin-top:10px"><summary>{}</summary>{}</details>').format(title, table)


def _counters(result: FlowsResult) -> Markup:
    rows: list[list[Cell]] = [
        [(say_counter(name), None), (f"{value:,.6g}", float(value))]
        for name, value in result.stats.items()
        if value and name != "cpu_s"
    ]
    table = frame.part("table", "counters", [("counted", False), ("number", True)], rows) if rows else Markup()
    return table + paragraphs(say_assumed(result))
