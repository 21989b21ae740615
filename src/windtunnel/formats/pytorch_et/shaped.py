"""Profiler traces that were recorded with shapes (`record_shapes=True`): their measured graph with the shapes of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.formats.kineto.columns import EventColumns
from windtunnel.formats.kineto.fields import TraceEvent
from windtunnel.formats.kineto.reader import broken_of, ranked_traces, run_of
from windtunnel.formats.kineto.trace import ReadTrace
from windtunnel.formats.pytorch_et.nodes import PRODUCTS, Product, product_of
from windtunnel.formats.reading import Context
from windtunnel.records.run import EventKind
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.runs.graph import graph_and_rows
from windtunnel.runs.windows import launch_of


@dataclass
class ShapedColumns(EventColumns):
    """Events with the shapes of products, by row."""

    products: dict[int, Product] = field(default_factory=dict)

    def _append(self, events: list[TraceEvent]) -> None:
        first = self.rows
        super()._append(events)
        for at, event in enumerate(events):
            if event.name in PRODUCTS and (product := _product(event)) is not None:
                self.products[first + at] = product


def read_shaped(files: Sequence[Path], context: Context) -> tuple[TraceGraph, tuple[str, ...]]:
    """The measured graph of all ranks, with shapes of products, and what was assumed or could not be read."""
    traces, notes = ranked_traces(files, context, ShapedColumns)
    graph, rows = graph_and_rows(run_of(traces, files))
    products = np.zeros((len(graph), 5), np.int64)
    for number, trace in enumerate(traces):
        tasks = np.arange(graph.rank_start[number], graph.rank_start[number + 1])
        tasks = tasks[(rows[tasks] >= 0) & ~graph.on_host[tasks]]
        products[tasks] = _of_events(trace)[rows[tasks]]
    known = products[:, 0] > 0
    flops = np.where(known, 2.0 * np.prod(products[:, :4].astype(np.float64), axis=1), graph.flops)
    broken = [what for one in traces for what in broken_of(one)]
    return replace(graph, products=products, flops=flops), (*notes, "each launch, gap and wait of the host as measured", *broken)


def _of_events(trace: ReadTrace) -> Int64s:
    """[E, 5] the product that each kernel computes: that of the operator around its launch, if that launched nothing else."""
    events, columns = trace.trace.events, trace.columns
    found = np.zeros((len(events), 5), np.int64)
    if not isinstance(columns, ShapedColumns) or not columns.products or not len(trace.rows):
        return found
    operator = np.flatnonzero(np.isin(trace.rows, list(columns.products)) & (events.kind == EventKind.OPERATOR))
    operator = operator[np.lexsort((events.begin[operator], events.lane[operator]))]
    owner = launch_of(events)
    kernel = np.flatnonzero((owner >= 0) & (events.kind == EventKind.KERNEL))
    of_kernel = np.full(len(kernel), -1, np.int64)
    for lane in np.unique(events.lane[operator]).tolist():
        mine = operator[events.lane[operator] == lane]
        here = np.flatnonzero(events.lane[owner[kernel]] == lane)
        at = events.begin[owner[kernel[here]]]
        place = np.searchsorted(events.begin[mine], at, side="right") - 1
        inside = (place >= 0) & (at <= (events.begin + events.seconds)[mine[np.maximum(place, 0)]])
        of_kernel[here[inside]] = mine[place[inside]]
    once = np.bincount(of_kernel[of_kernel >= 0], minlength=len(events)) == 1
    alone = (of_kernel >= 0) & once[np.maximum(of_kernel, 0)]
    shapes = [columns.products[int(row)] for row in trace.rows[of_kernel[alone]]]
    found[kernel[alone]] = np.array(shapes, np.int64).reshape(-1, 5)
    return found


def _product(event: TraceEvent) -> Product | None:
    if event.args is None or not event.args.shapes:
        return None
    try:
        shapes, kinds = msgspec.json.decode(event.args.shapes), msgspec.json.decode(event.args.types or b"[]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return None
    return product_of(str(event.name), shapes, [f"Tensor({kind})" for kind in kinds])
