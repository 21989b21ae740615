"""Flows over a fabric as JSON. A million flows are written without an object for each.

Queues and rates of a packet run over time, as CSV or JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from windtunnel.base.json_text import json_text
from windtunnel.engine.packet import PacketSeries
from windtunnel.network.flows.run import FlowsResult
from windtunnel.network.simulate.collisions import EDGES, Collisions

SCHEMA = "windtunnel.flows/1"
"""Version; increases when a key changes its meaning or is removed."""
_ROW = '{"src": %d, "dst": %d, "bytes": %d, "start_s": %s, "fct_s": %s}'


def link_name(result: FlowsResult, link: int) -> str:
    """`leaf0->spine3`."""
    graph = result.graph
    return f"{graph.name(int(graph.link_from[link]))}->{graph.name(int(graph.link_to[link]))}"


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


SERIES_SCHEMA = "windtunnel.series/1"
"""Version; increases when a key changes its meaning or is removed."""
Column = tuple[str, str, list[float]]


def series_text(result: FlowsResult, name: str) -> str:
    """Text for a file `name`: JSON for .json, else CSV `time_s,of,quantity,value`, a row per time, link or flow, and quantity.

    Of links `queue_B` (waiting), `sent_B` and `pfc_pauses` (so far); of flows `rate_Bps` (that congestion control permits),
    `acked_B` and `cnps` (so far). `of` is `leaf0->spine3`, or `flow 7`, the number of its row. Nothing where no flow needed a link.
    """
    series = result.series
    columns = [] if series is None else list(_columns(result, series))
    times = [] if series is None else [round(time, 12) for time in series.time.tolist()]
    if name.endswith(".json"):
        by_time: dict[str, dict[str, list[float]]] = {}
        for of, quantity, values in columns:
            by_time.setdefault(of, {})[quantity] = values
        return json.dumps(
            {"schema": SERIES_SCHEMA, "time_s": times, "series": [{"of": of, **values} for of, values in by_time.items()]}
        )
    rows = (
        f"{time!r},{of},{quantity},{value!r}"
        for of, quantity, values in columns for time, value in zip(times, values, strict=True)
    )  # fmt: skip
    return "\n".join(["time_s,of,quantity,value", *rows])


def _columns(result: FlowsResult, series: PacketSeries) -> Iterator[Column]:
    for at, link in enumerate(series.links):
        for quantity, table in (("queue_B", series.queue), ("sent_B", series.sent), ("pfc_pauses", series.pauses)):
            yield link_name(result, link), quantity, table[at].tolist()
    for at, flow in enumerate(series.lanes):
        for quantity, values in (("rate_Bps", series.rate), ("acked_B", series.acknowledged), ("cnps", series.cnps)):
            yield f"flow {flow}", quantity, values[at].tolist()
