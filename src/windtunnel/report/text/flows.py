"""Flows over a fabric as JSON and as text. A million flows are written without an object for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.text import Text

from windtunnel.base.json_text import json_text
from windtunnel.base.units import show_size, show_time
from windtunnel.draw.listing import listing
from windtunnel.network.flows.run import FlowsResult
from windtunnel.network.simulate.collisions import EDGES, Collisions
from windtunnel.report.words.flows import collision_sentence, link_name, say_assumed, say_counter
from windtunnel.sheet import numbers as say

SCHEMA = "windtunnel.flows/1"
"""Version; increases when a key changes its meaning or is removed."""
_ROW = '{"src": %d, "dst": %d, "bytes": %d, "start_s": %s, "fct_s": %s}'


def flows_json(result: FlowsResult, fabric: str) -> str:
    """JSON text: `flows` (src, dst, bytes, start_s, fct_s; null where the run was stopped first), `fct_s`, `stats`, `links`, ...

    `links` are the busiest, by share of the run for which they were busy. Floats in their shortest exact form.
    """
    head: dict[str, Any] = {
        "schema": SCHEMA, "fabric": fabric, "network": result.options.network, "routing": result.options.routing,
        "nic": result.options.nic, "seed": result.options.seed, "finished": result.finished, "fct_s": result.summary(),
        "makespan_s": result.makespan(), "stats": result.stats, "links": result.hot_links(), "assumed": result.assumed,
        "collisions": None if result.collisions is None else collisions_json(result, result.collisions),
    }  # fmt: skip
    text = json_text(head).rstrip()
    return "".join([text[:-2], ',\n  "flows": [\n    ', ",\n    ".join(_rows(result)), "\n  ]\n}\n"])


def collisions_json(result: FlowsResult, met: Collisions) -> dict[str, Any]:
    """Fields of `met`, with the worst link as node names and the histogram with its bin edges."""
    plain: dict[str, Any] = asdict(met)
    plain["histogram_edges"] = list(EDGES)
    plain["worst_link"] = link_name(result, met.worst_link) if met.worst_link >= 0 else None
    return plain


def _rows(result: FlowsResult) -> Iterator[str]:
    flows = result.flows
    fct = map(repr, result.fct.tolist())
    times = fct if not np.isnan(result.fct).any() else (value if value != "nan" else "null" for value in fct)
    columns = (flows.src.tolist(), flows.dst.tolist(), flows.bytes.tolist(), map(repr, flows.start.tolist()), times)
    return (_ROW % row for row in zip(*columns, strict=True))


def flows_report(result: FlowsResult, fabric: str, console: Console | None = None) -> None:
    """Prints completion times, counters, collisions, the busiest links and what was assumed."""
    out = console or Console(highlight=False)
    out.print(Group(*_parts(result, fabric)))


def _parts(result: FlowsResult, fabric: str) -> Iterator[Any]:
    graph, flows, o = result.graph, result.flows, result.options
    title = f"{len(flows):,} flows, {show_size(float(flows.bytes.sum()))}, over {fabric}: {graph.endpoints:,} endpoints"
    yield Text(f"{title}, {graph.nodes:,} nodes, {graph.links:,} links", style="bold")
    yield Text(f"network {o.network}, routing {o.routing}, NICs {o.nic}, seed {o.seed}")
    ended = int((~np.isnan(result.fct)).sum())
    if not result.finished:
        yield Text(f"stopped: {ended:,} of {len(flows):,} flows had ended", style="bold red")
    summary = result.summary()
    times = listing(("completion time", "left"), *((name, "right") for name in summary))
    times.add_row("", *(show_time(v) if v is not None else "-" for v in summary.values()))
    yield Text()
    yield times
    yield Text()
    span = result.makespan()
    if span > 0:
        done = flows.bytes[~np.isnan(result.fct)].sum()
        yield Text(f"from first start to last end {show_time(span)}; together {show_size(float(done) / span)}/s")
    counters = {k: v for k, v in result.stats.items() if v}
    yield Text(" · ".join(f"{say_counter(name)} {_number(value)}" for name, value in counters.items()))
    if result.collisions is not None and result.collisions.links:
        yield Text(collision_sentence(result, result.collisions))
    links = result.hot_links(8)
    if links:
        table = listing(("busiest links", "left"), ("bytes", "right"), ("rate", "right"), ("busy", "right"))
        for link in links:
            name, rate = f"{link['from']} → {link['to']}", float(str(link["rate_Bps"]))
            moved, busy = float(str(link["bytes"])), float(str(link["utilisation"]))
            table.add_row(Text(name), show_size(moved), say.rate(rate), say.percent(busy))
        yield Text()
        yield table
        yield Text()
    for line in say_assumed(result):
        yield Text(line, style="dim")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"
