"""Queues and rates of a packet run over time, as CSV or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from windtunnel.engine.packet import PacketSeries
from windtunnel.network.flows.as_json import link_name
from windtunnel.network.flows.run import FlowsResult

SCHEMA = "windtunnel.series/1"
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
        return json.dumps({"schema": SCHEMA, "time_s": times, "series": [{"of": of, **values} for of, values in by_time.items()]})
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
