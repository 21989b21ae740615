"""What plain flows show: how full links are, the slowest flow with its links, completion times, queues, the load of each level."""

from __future__ import annotations

import re

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.network.flows.run import FlowsResult, link_name, slowest_flow
from windtunnel.network.simulate.traffic import Collisions
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Axis,
    Bar,
    Bars,
    Block,
    Cell,
    Column,
    Curve,
    Curves,
    Figure,
    Folded,
    Lines,
    Mark,
    Plot,
    Scale,
    Section,
    Sheet,
    Table,
)
from windtunnel.sheet.colours import BLUE, COLOURS, GREEN, LOADS, ORANGE, load_step
from windtunnel.sheet.sentence import Sentence, quote

MOST_LINKS, MOST_FLOWS, MOMENTS, MOST_QUEUES, MOST_IN_TERMINAL = 14, 200, 400, 7, 8
"""Busiest links and slowest flows that are listed, points of a curve, queues that are drawn, links in the terminal."""


def flows_sheet(result: FlowsResult, fabric: str = "") -> Sheet:
    """What `flows` shows. `fabric`: as it was asked."""
    graph, flows, options = result.graph, result.flows, result.options
    name = fabric or Sentence("{count} endpoints", count=f"{graph.endpoints:,}")
    size = say.size(float(flows.bytes.sum()))
    facts = {"flows": f"{len(flows):,}", "size": size, "endpoints": f"{graph.endpoints:,}", "nodes": f"{graph.nodes:,}",
             "links": f"{graph.links:,}"}  # fmt: skip
    settings = Sentence(
        "network {network}, routing {routing}, NICs {nic}, seed {seed}",
        network=options.network, routing=options.routing, nic=options.nic, seed=options.seed,
    )  # fmt: skip
    busy, met = _busy_shares(result), result.collisions
    said = (Lines((collision_sentence(result, met),)),) if met is not None and met.links else ()
    return Sheet(
        Sentence("Flows over {fabric}", fabric=say.clean(name)[:160] if fabric else name),
        Sentence("{flows} flows, {size}, over {fabric}: {endpoints} endpoints, {nodes} nodes, {links} links", **facts, fabric=name),
        _figures(result, busy),
        (
            Section("", (Lines((settings,)), *_summary(result))),
            Section("", (*_run_lines(result), *said, *_busiest(result))),
            Section("", (Lines(tuple(map(quote, say_assumed(result))), mood="soft"),)),
            Section("Load of links", _loads(result, busy)),
            Section("The slowest flow", _slowest(result, busy)),
            Section("Completion times", _times(result) if np.isfinite(result.fct).any() else ()),
            Section("Queues over time", _queues(result)),
            Section("Hash collisions", tuple(Lines(block.lines, detail=True) for block in said)),
            Section("Counters and assumptions", _counters(result)),
        ),
        (
            Sentence("{flows} flows, {size}: {endpoints} endpoints, {nodes} nodes, {links} links", **facts),
            settings,
        ),
        titled=True,
    )  # fmt: skip


def _busy_shares(result: FlowsResult) -> Floats:
    """[L] share of the run for which a link was busy at its full rate."""
    span = result.makespan()
    return result.link_bytes / result.graph.link_rate / span if span > 0.0 else np.zeros(result.graph.links)


def _figures(result: FlowsResult, busy: Floats) -> tuple[Figure, ...]:
    summary, span = result.summary(), result.makespan()
    figures = [Figure("makespan_s", "all flows take", span, "s")]
    figures += [
        Figure(f"fct_s.{name}", Sentence("a flow, {which}", which=Sentence(name)), value, "s")
        for name, value in summary.items() if name != "min" and value is not None
    ]  # fmt: skip
    if span > 0.0:
        rate = float(result.flows.bytes[np.isfinite(result.fct)].sum()) / span
        figures.append(Figure("stats.rate_Bps", "together", rate, "B/s", None, quote(f"{say.size(rate)}/s")))
    if len(busy):
        fullest = float(busy.max())
        mood = "bad" if fullest > 0.9 else ""
        figures.append(Figure("links.fullest", "the fullest link", fullest, "%", None, say.percent(fullest), mood))
    if not result.finished:
        figures.append(Figure("finished", "stopped", None, "", None, _ended_count(result), "bad"))
    return tuple(figures)


def _ended_count(result: FlowsResult) -> Sentence:
    ended = int(np.isfinite(result.fct).sum())
    return Sentence("{count} of {flows} ended", count=f"{ended:,}", flows=f"{len(result.fct):,}")


def _summary(result: FlowsResult) -> tuple[Block, ...]:
    """Completion times in the terminal."""
    summary = result.summary()
    columns = (Column("completion time"), *(Column(name, True) for name in summary))
    cells = (Cell(say.seconds(value), value) if value is not None else Cell("-") for value in summary.values())
    table = Table("completion", columns, ((Cell(""), *cells),), brief=True)
    if result.finished:
        return (table,)
    ended = int(np.isfinite(result.fct).sum())
    stopped = Sentence("stopped: {count} of {flows} flows had ended", count=f"{ended:,}", flows=f"{len(result.flows):,}")
    return (Lines((stopped,), mood="bad", brief=True), table)


def _run_lines(result: FlowsResult) -> tuple[Block, ...]:
    lines: list[str] = [""]
    if (span := result.makespan()) > 0.0:
        done = float(result.flows.bytes[~np.isnan(result.fct)].sum())
        template = "from first start to last end {span}; together {rate}/s"
        lines.append(Sentence(template, span=say.seconds(span), rate=say.size(done / span)))
    counters = {name: value for name, value in result.stats.items() if value}
    lines.append(quote(" · ".join(f"{_counter(name)} {_number(value)}" for name, value in counters.items())))
    return (Lines(tuple(lines), brief=True),)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def _busiest(result: FlowsResult) -> tuple[Block, ...]:
    """The busiest links in the terminal."""
    rows = []
    for link in result.hot_links(MOST_IN_TERMINAL):
        rate, moved, busy = (float(str(link[key])) for key in ("rate_Bps", "bytes", "utilisation"))
        cells = (Cell(say.size(moved), moved), Cell(say.rate(rate), rate), Cell(say.percent(busy), busy))
        rows.append((Cell(f"{link['from']} → {link['to']}"), *cells))
    columns = (Column("busiest links"), Column("bytes", True), Column("rate", True), Column("busy", True))
    return (Table("busiest", columns, tuple(rows), brief=True), Lines(("",), brief=True)) if rows else ()


def _loads(result: FlowsResult, busy: Floats) -> tuple[Block, ...]:
    """The busiest links, and each level of the fabric as a row."""
    top = [link for link in np.argsort(-busy, kind="stable")[:MOST_LINKS].tolist() if busy[link] > 0.0]
    if not top:
        return (Lines(("No link carries anything: no flow has bytes, or none leaves its endpoint.",), detail=True),)
    about = Sentence(
        "The {count} busiest of {links} links: bytes, and the share of the run for which each is busy.",
        count=len(top), links=f"{result.graph.links:,}",
    )  # fmt: skip
    bars = tuple(
        Bar(_link(result, link).text, float(result.link_bytes[link]), share, LOADS[load_step(share)][1], Sentence(
            "{rate}, busy {share} of the run", rate=say.rate(float(result.graph.link_rate[link])), share=say.percent(share)))
        for link in top for share in (float(busy[link]),)
    )  # fmt: skip
    heads = ("links", "bytes", "load", "fullest", "idle links")
    levels = Table("levels", (Column("from → to"), *(Column(head, True) for head in heads)), _levels(result, busy), detail=True)
    return (Lines((about,), detail=True), Bars(bars, "B", detail=True), levels)


def _link(result: FlowsResult, link: int) -> Cell:
    return Cell(quote(link_name(result, link).replace("->", " → ")))


def _rate_and_bytes(result: FlowsResult, link: int) -> tuple[Cell, Cell]:
    """Rate and bytes of a link."""
    rate, moved = float(result.graph.link_rate[link]), float(result.link_bytes[link])
    return Cell(say.rate(rate), rate), Cell(say.size(moved), moved)


def _share(value: float) -> Cell:
    return Cell(say.percent(value), value)


def _levels(result: FlowsResult, busy: Floats) -> tuple[tuple[Cell, ...], ...]:
    """A row for each kind of link, by the kinds of nodes at its ends, as their names say them."""
    graph = result.graph
    kinds = [re.sub(r"[\d.]+", "", graph.name(node)).strip("-_:/ ") or "node" for node in range(graph.nodes)]
    names, which = np.unique(np.array(kinds, dtype=np.str_), return_inverse=True)
    pair = which[graph.link_from] * len(names) + which[graph.link_to]
    rows: list[tuple[Cell, ...]] = []
    for kind in np.unique(pair).tolist():
        links = np.nonzero(pair == kind)[0]
        begin, end = names[kind // len(names)], names[kind % len(names)]
        idle, carried = int(np.count_nonzero(busy[links] == 0.0)), float(result.link_bytes[links].sum())
        rows.append(
            (Cell(f"{begin} → {end}"), Cell(f"{len(links):,}", float(len(links))), Cell(say.size(carried), carried),
             _share(float(busy[links].mean())), _share(float(busy[links].max())), Cell(f"{idle:,}", float(idle)))
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: -(row[4].value or 0.0)))


def _slowest(result: FlowsResult, busy: Floats) -> tuple[Block, ...]:
    """The flow that took longest, what it would take alone, and its links in order."""
    found = slowest_flow(result)
    if found is None:
        return ()
    number, links = found
    flows, graph = result.flows, result.graph
    begin, end = (graph.name(int(graph.endpoint[int(which[number])])) for which in (flows.src, flows.dst))
    size, took = float(flows.bytes[number]), float(result.fct[number])
    facts = {"flow": f"{number:,}", "begin": begin, "end": end, "size": say.size(size), "time": say.seconds(took)}
    if not links:
        template = "Flow {flow}, from {begin} to {end}, {size}: {time}. Its packets choose their links one by one."
        return (Lines((Sentence(template, **facts),), detail=True),)
    alone = size / float(graph.link_rate[list(links)].min())
    line = Sentence(
        "Flow {flow}, from {begin} to {end}, {size}: {time}, {times} times as long as its bytes take on its narrowest link alone "
        "({alone}).",
        **facts, times=f"{took / alone:.2f}", alone=say.seconds(alone),
    )  # fmt: skip
    rows = tuple(
        (Cell(str(place), float(place)), _link(result, link), *_rate_and_bytes(result, link),
         _share(size / max(float(result.link_bytes[link]), 1.0)), _share(float(busy[link])))
        for place, link in enumerate(links, start=1)
    )  # fmt: skip
    columns = (Column("", True), Column("link"),
               *(Column(head, True) for head in ("rate", "bytes of all flows", "this flow's share", "busy")))  # fmt: skip
    return (Lines((line,), detail=True), Table("slowest", columns, rows, detail=True))


def _times(result: FlowsResult) -> tuple[Block, ...]:
    """The share of flows that ended within a time, and the slowest ones as a table."""
    ended = np.nonzero(np.isfinite(result.fct))[0]
    times = np.sort(result.fct[ended])
    kept = np.unique(np.linspace(0, len(times) - 1, min(MOMENTS, len(times))).astype(int))
    points = tuple((float(times[place]), (place + 1) / len(times)) for place in kept.tolist())
    marks = tuple(
        Mark(value, share, Sentence("{name}: {time}", name=name, time=say.seconds(value)), colour, "square")
        for name, share, colour in (("p50", 0.5, GREEN), ("p99", 0.99, ORANGE))
        if (value := result.summary()[name]) is not None
    )
    plot = Plot(
        "share of flows over completion time", Scale("completion time", "s", least=0.0), Scale("share of flows", "%", least=0.0),
        marks, (Curve("flows that ended", BLUE, points),), 260.0,
        (("flows that ended", BLUE), ("p50", GREEN), ("p99", ORANGE)), detail=True,
    )  # fmt: skip
    flows, graph = result.flows, result.graph
    slow = ended[np.argsort(-result.fct[ended], kind="stable")[:MOST_FLOWS]].tolist()
    rows = []
    for flow in slow:
        begin, end = (graph.name(int(graph.endpoint[int(which[flow])])) for which in (flows.src, flows.dst))
        size, start, took = float(flows.bytes[flow]), float(flows.start[flow]), float(result.fct[flow])
        rows.append(
            (Cell(f"{flow:,}", float(flow)), Cell(begin), Cell(end), Cell(say.size(size), size),
             Cell(say.seconds(start) if start else "0", start), Cell(say.seconds(took), took))
        )  # fmt: skip
    columns = (Column("flow", True), Column("from"), Column("to"), *(Column(head, True) for head in ("bytes", "start", "takes")))
    title = Sentence("The {count} slowest of {flows} flows", count=f"{len(rows):,}", flows=f"{len(ended):,}")
    return (plot, Folded(title, (Table("flows", columns, tuple(rows)),), detail=True))


def _queues(result: FlowsResult) -> tuple[Block, ...]:
    """Bytes that waited for the links with the longest queues, where a packet run was sampled."""
    series = result.series
    if series is None or not len(series.time):
        return ()
    longest = sorted(range(len(series.links)), key=lambda row: -float(series.queue[row].max(initial=0)))[:MOST_QUEUES]
    kept = [row for row in longest if series.queue[row].max(initial=0) > 0]
    if not kept:
        return (Lines(("No packet waited for a link.",), mood="soft", detail=True),)
    step = max(1, len(series.time) // MOMENTS)
    times = [round(time, 12) for time in series.time[::step].tolist()]
    curves = tuple(
        Curve(quote(link_name(result, series.links[row])), COLOURS[number % len(COLOURS)],
              tuple(zip(times, map(float, series.queue[row][::step].tolist()), strict=True)))
        for number, row in enumerate(kept)
    )  # fmt: skip
    most = float(series.queue[kept[0]].max())
    drawn = Curves("queues over time", curves, Axis(times[-1] or 1e-9, "s"), Axis(1.05 * most, "B"), 240.0, detail=True)
    return (drawn,)


def _counters(result: FlowsResult) -> tuple[Block, ...]:
    rows = tuple(
        (Cell(_counter(name)), Cell(f"{value:,.6g}", float(value)))
        for name, value in result.stats.items()
        if value and name != "cpu_s"
    )
    table = (Table("counters", (Column("counted"), Column("number", True)), rows, detail=True),) if rows else ()
    return (*table, Lines(tuple(map(quote, say_assumed(result))), detail=True))


def _counter(name: str) -> str:
    """`ack packet hops`; units stay: `cpu_s`, `mtu_B`."""
    return name if name.endswith(("_s", "_B", "_Bps")) else name.replace("_", " ")


def say_assumed(result: FlowsResult) -> list[str]:
    """What was assumed: a line for each table, then the rest in one."""
    tables = {name: value for name, value in result.assumed.items() if isinstance(value, dict)}
    lines = [f"{_counter(name)}: {_table_text(value)}" for name, value in tables.items()]
    rest = [
        f"{_counter(name)} {_table_text(value)}"
        for name, value in result.assumed.items()
        if name not in tables and value is not None
    ]
    return [*lines, " · ".join(rest)]


def _table_text(value: object) -> str:
    """`a=1 b=2` of a table."""
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{key}={item:.6g}" if isinstance(item, float) else f"{key}={item}" for key, item in value.items())


def collision_sentence(result: FlowsResult, met: Collisions) -> Sentence:
    """Hash collisions on the worst link and for the average byte."""
    return Sentence(
        "hash collisions: the worst link needs {worst} times as long as an even spread ({flows} flows on {link} where {even} would "
        "be even); the average byte meets {mean}",
        worst=f"{met.worst_factor:.2f}", flows=met.worst_flows, link=link_name(result, met.worst_link),
        even=f"{met.worst_flows_even:.3g}", mean=f"{met.mean_factor:.2f}",
    )  # fmt: skip
