"""Profiler traces that were recorded with shapes (`record_shapes=True`): their measured graph with the shapes of products and of
fused attention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.formats.reading import Context
from windtunnel.formats.traces.kineto.batches import EVENTS, Layout
from windtunnel.formats.traces.kineto.columns import EventColumns
from windtunnel.formats.traces.kineto.fields import TraceEvent, ValuedArgs, ValuedEvent
from windtunnel.formats.traces.kineto.reader import broken_of, ranked_traces, run_of
from windtunnel.formats.traces.kineto.trace import ReadTrace
from windtunnel.formats.traces.pytorch_et.nodes import ATTENTIONS, PRODUCTS, Product, attention_of, element_of, product_of
from windtunnel.records.run import EventKind
from windtunnel.records.trace_graph import COLUMNS, AttentionShape, TraceGraph
from windtunnel.traces.graph import graph_and_rows
from windtunnel.traces.windows import launch_of


@dataclass
class ShapedColumns(EventColumns):
    """Events with the shapes of products and of fused attention, by row; None for attention whose inputs do not tell."""

    layout: ClassVar[Layout[TraceEvent]] = replace(EVENTS, kind=ValuedEvent)
    products: dict[int, Product] = field(default_factory=dict)
    attentions: dict[int, AttentionShape | None] = field(default_factory=dict)

    def _append(self, events: list[TraceEvent]) -> None:
        first = self.rows
        super()._append(events)
        for at, event in enumerate(events):
            name = event.name if isinstance(event.name, str) else ""
            if name in PRODUCTS:
                shapes, kinds, _ = _inputs(event)
                if (product := product_of(name, shapes, kinds)) is not None:
                    self.products[first + at] = product
            elif name in ATTENTIONS:
                shapes, kinds, values = _inputs(event)
                element = element_of(kinds, ATTENTIONS[name].query)
                self.attentions[first + at] = attention_of(name, shapes, element, values)


def read_shaped(files: Sequence[Path], context: Context) -> tuple[TraceGraph, tuple[str, ...]]:
    """The measured graph of all ranks, with shapes of products and attention, and what was assumed or could not be read."""
    traces, notes = ranked_traces(files, context, ShapedColumns)
    graph, rows = graph_and_rows(run_of(traces, files))
    products = np.zeros((len(graph), 5), np.int64)
    attentions = []
    operators = 0
    for number, trace in enumerate(traces):
        tasks = np.arange(graph.rank_start[number], graph.rank_start[number + 1])
        tasks = tasks[(rows[tasks] >= 0) & ~graph.on_host[tasks]]
        if not isinstance(trace.columns, ShapedColumns) or not len(trace.rows):
            continue
        products[tasks] = _products(trace, trace.columns)[rows[tasks]]
        attentions.append(_attentions(trace, trace.columns, tasks, rows[tasks], operators))
        operators += len(trace.trace.events)
    known = products[:, 0] > 0
    flops = np.where(known, 2.0 * np.prod(products[:, :4].astype(np.float64), axis=1), graph.flops)
    broken = [what for one in traces for what in broken_of(one)]
    fused = np.concatenate([np.empty((0, len(COLUMNS)), np.int64), *attentions])
    graph = replace(graph, products=products, flops=flops, attentions=fused)
    return graph, (*notes, "each launch, gap and wait of the host as measured", *broken)


def _products(trace: ReadTrace, columns: ShapedColumns) -> Int64s:
    """[E, 5] the product that each kernel computes: that of the operator around its launch, if that launched nothing else."""
    events = trace.trace.events
    found = np.zeros((len(events), 5), np.int64)
    if columns.products:
        operator = _operators(trace, list(columns.products))
        once = np.bincount(operator[operator >= 0], minlength=len(events)) == 1
        alone = np.flatnonzero((operator >= 0) & once[np.maximum(operator, 0)])
        shapes = [columns.products[int(row)] for row in trace.rows[operator[alone]]]
        found[alone] = np.array(shapes, np.int64).reshape(-1, 5)
    return found


def _attentions(trace: ReadTrace, columns: ShapedColumns, tasks: Int64s, rows: Int64s, first: int) -> Int64s:
    """[A, 13] the tasks among these, each of the event in `rows`, that a fused attention launched; operators count from `first`."""
    if not columns.attentions:
        return np.empty((0, len(COLUMNS)), np.int64)
    operator = _operators(trace, list(columns.attentions), outermost=True)[rows]
    listed: list[tuple[int, ...]] = []
    for task, own in zip(tasks[operator >= 0].tolist(), operator[operator >= 0].tolist(), strict=True):
        if (shape := columns.attentions[int(trace.rows[own])]) is not None:
            listed.append((task, first + own, *shape))
    return np.array(listed, np.int64).reshape(-1, len(COLUMNS))


def _operators(trace: ReadTrace, rows: list[int], outermost: bool = False) -> Int64s:
    """[E] the operator among those of `rows` around each kernel's launch: the one that began last, or no one inside another one;
    -1 none."""
    events = trace.trace.events
    found = np.full(len(events), -1, np.int64)
    operator = np.flatnonzero(np.isin(trace.rows, rows) & (events.kind == EventKind.OPERATOR))
    operator = operator[np.lexsort((-events.seconds[operator], events.begin[operator], events.lane[operator]))]
    end = events.begin + events.seconds
    owner = launch_of(events)
    kernel = np.flatnonzero((owner >= 0) & (events.kind == EventKind.KERNEL))
    for lane in np.unique(events.lane[operator]).tolist():
        mine = operator[events.lane[operator] == lane]
        if outermost:
            before = np.maximum.accumulate(np.concatenate(([-np.inf], end[mine][:-1])))
            mine = mine[events.begin[mine] >= before]
        here = kernel[events.lane[owner[kernel]] == lane]
        at = events.begin[owner[here]]
        place = np.searchsorted(events.begin[mine], at, side="right") - 1
        inside = (place >= 0) & (at <= end[mine[np.maximum(place, 0)]])
        found[here[inside]] = mine[place[inside]]
    return found


def _inputs(event: TraceEvent) -> tuple[list[Any], list[Any], list[Any]]:
    """Shapes, types and scalar values of an operator's inputs; empty where they are not recorded."""
    if event.args is None:
        return [], [], []
    shapes, kinds = _list(event.args.shapes), _list(event.args.types)
    values = _list(event.args.concrete) if isinstance(event.args, ValuedArgs) else []
    return shapes, [f"Tensor({kind})" for kind in kinds], values


def _list(raw: msgspec.Raw) -> list[Any]:
    try:
        value = msgspec.json.decode(raw) if raw else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return value if isinstance(value, list) else []
