"""Plain flows under a step: a list of flows that is repeated while the jobs run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.units import parse_time
from windtunnel.engine import Program, ProgramBuilder
from windtunnel.engine.packet import plain_lanes
from windtunnel.engine.routes import route
from windtunnel.network.flows.flow_list import load_flows
from windtunnel.network.simulate.axis_calls import AxisCall, Machine
from windtunnel.network.simulate.paths import path_sums
from windtunnel.network.simulate.traffic import loads
from windtunnel.predict.category import Category
from windtunnel.predict.engines.shared import CallSet
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall, NetworkCalls
from windtunnel.predict.program.keys import LIVE_CALLS
from windtunnel.predict.runs.beside import Resident
from windtunnel.workload import Axis, Comm

OPTION = "--background"
MOST_FLOWS = 4096
"""Flows of a list: each is a variable of its own."""


def background_of(text: str, name: str, on: Machine, book: CallBook) -> Resident:
    """The flows of `FLOWS[@PERIOD]`: a CSV file or a pattern as `windtunnel flows` takes it, begun again every PERIOD, or when its
    last flow has ended if that is later. Endpoints are the fabric's GPUs, node by node.

    Raises FileError, UnknownName and SpecError for flows that are none, at `--background` for more than MOST_FLOWS.
    """
    listed, _, every = text.rpartition("@") if "@" in text else (text, "", "")
    try:
        period = parse_time(every) if every else 0.0
    except ValueError:
        raise SpecError(OPTION, text, "FLOWS, or FLOWS@PERIOD such as incast:senders=8,bytes=1MiB@50ms") from None
    try:
        flows = load_flows(listed, len(on.placed.node))
    except UnknownName as error:
        raise SpecError(OPTION, listed, error.allowed, error.hint) from None
    moving = np.flatnonzero((flows.bytes > 0) & (flows.src != flows.dst))
    if not len(moving) or len(moving) > MOST_FLOWS:
        raise SpecError(OPTION, f"{len(moving):,} flows", f"1 to {MOST_FLOWS:,} flows that move bytes")
    src, dst, size = flows.src[moving], flows.dst[moving], flows.bytes[moving]
    rows = [slice(n, n + 1) for n in range(len(moving))]
    plans = [messages(on, src[row], dst[row], size[row], np.arange(row.start, row.stop)) for row in rows]
    calls = [NetworkCall(Comm.SEND_RECV, Axis.NONE, float(one), n) for n, one in enumerate(size.tolist())]
    starts = flows.start[moving] - flows.start[moving].min()
    return repeat_calls(name, "flows", on, book, CallSet(name, calls, plans), starts, period)


def repeat_calls(
    name: str, kind: str, on: Machine, book: CallBook, what: CallSet, starts: Floats | Sequence[float], period: float = 0.0
) -> Resident:
    """Traffic that begins each of its calls at `starts` [calls] seconds, and all of it again every `period` seconds."""
    live = NetworkCalls(book)
    for number, call in enumerate(what.calls):
        live.bind(np.array([number], np.int64), call)
    return Resident(name, kind, on, _program(starts, period), live, what)


def _program(starts: Floats | Sequence[float], period: float) -> Program:
    """A rank for each call, that waits for its start; one more that waits for the period."""
    builder = ProgramBuilder(categories=len(Category), live_key=LIVE_CALLS)
    for number, start in enumerate(starts):
        rank = builder.rank()
        begun = rank.add(builder.add_template(seconds=[float(start)]))
        rank.add_rendezvous(1, [(number, 0.0, 1)], [begun])
    builder.rank().add(builder.add_template(seconds=[period]))
    return builder.build()


def messages(on: Machine, src: Int32s, dst: Int32s, size: Int64s, way: Int64s, seconds: float = 0.0) -> AxisCall:
    """Messages [K] that start together, as one call that takes at least `seconds`; `way` tells equal endpoints apart."""
    options = on.options(Comm.SEND_RECV)
    keys = way.astype(np.uint64)
    lanes = plain_lanes(src, dst, size)
    paths = route(on.graph, lanes.src, lanes.dst, keys, options)
    latency = float(path_sums(on.graph.link_latency[paths.links], paths).max())
    alone = float((loads(on.graph, paths, size.astype(np.float64)) / on.graph.link_rate).max())
    moved = max(seconds, alone)
    if seconds > alone:
        lanes = plain_lanes(src, dst, size, rate=size / moved)
    return AxisCall(lanes, options, keys, paths, moved + latency, latency, 0.0, 0.0, False)
