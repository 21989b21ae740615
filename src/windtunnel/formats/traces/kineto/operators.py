"""Operators of a trace by inputs, pass and module: how often each was called, and how long what it launched ran on the device.

`profile.trace` finds the same kernel by kernel and says how; here all events are columns, since traces of jobs have millions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.engine.scan import enclosing, innermost
from windtunnel.formats.traces.kineto.columns import Table
from windtunnel.profile.trace import BACKWARD, FROM_GRAPH, GRAPH_LAUNCHES, MODULE, NO_LAUNCH, WINDOW
from windtunnel.profile.trace_events import COMPILED, shapes_of
from windtunnel.records.run import ON_DEVICE, EventKind, OperatorCalls

_HOST = (EventKind.OPERATOR, EventKind.LAUNCH, EventKind.SYNC, EventKind.ANNOTATION)
_PASSES = ("forward", "backward", "optimizer")
_NO_LAUNCH, _FROM_GRAPH = -1, -2
"""Numbers of names that no event has."""


@dataclass(frozen=True)
class _Host:
    """H events of the host by begin, the longer first, and one after them that stands for none: row -1."""

    kind: Uint8s
    correlation: Int64s
    seconds: Floats
    name: Int32s
    parent: Int32s  # [H + 1] the row of what is around it; -1: none
    operator: Int32s  # [H + 1] the row of the operator that it is or is in
    inputs: Int32s
    module: Int32s  # [H + 1] the name of the module that it works for; -1: none
    phase: Int32s  # [H + 1] index of `_PASSES`


def operators_of(table: Table, kinds: Uint8s, rows: Int64s, begin: Floats, seconds: Floats) -> tuple[OperatorCalls, ...]:
    """The operators of R events in order of their begin: `rows` of the table, with `kinds`, `begin` and `seconds` (s).

    Nothing where the host's operators were not recorded.
    """
    if not (kinds == EventKind.OPERATOR).any():
        return ()
    opens, ends = -np.inf, np.inf
    if WINDOW in table.names:
        marks = np.flatnonzero(_says(table, lambda name: name == WINDOW)[table.name[rows]] & (kinds == EventKind.ANNOTATION))
        if len(marks):
            opens, ends = float(begin[marks[0]]), float(begin[marks[0]] + seconds[marks[0]])
    at = np.flatnonzero(np.isin(kinds, _HOST))
    at = at[np.lexsort((-seconds[at], begin[at]))]
    host = _host(table, rows[at], kinds[at], begin[at], seconds[at])
    if (kinds == EventKind.KERNEL).any() or (kinds == EventKind.CALL).any():
        ran = np.flatnonzero(np.isin(kinds, ON_DEVICE) & (begin >= opens))
        return _sum_launched(table, host, table.correlation[rows[ran]], seconds[ran])
    own = (host.operator[:-1] == np.arange(len(at))) & (begin[at] >= opens) & (begin[at] <= ends)
    return _sum_alone(table, host, np.flatnonzero(own))


def _says(table: Table, asks: Callable[[str], bool]) -> Bools:
    """[names + 1] what is asked of each name; of none, the last, False."""
    return np.array([*map(asks, table.names), False])


def _host(table: Table, rows: Int64s, kinds: Uint8s, begin: Floats, seconds: Floats) -> _Host:
    def with_none(values: np.ndarray, none: float) -> np.ndarray:
        return np.append(values, np.array(none, values.dtype))

    threads: dict[tuple[object, object], int] = {}
    lanes = np.array([threads.setdefault(place[1:], len(threads)) for place in table.places] or [0], np.int32)
    parent = with_none(enclosing(lanes[table.place[rows]], begin, begin + seconds), -1)
    name, kind = with_none(table.name[rows], -1), with_none(kinds, EventKind.KERNEL)
    operators = (kind == EventKind.OPERATOR) & ~_says(table, lambda text: COMPILED.search(text) is not None)[name]
    operator = innermost(parent, operators)
    inside = innermost(parent, _says(table, lambda text: text.startswith(MODULE))[name])
    module = np.where(inside >= 0, name[inside], -1)
    sequence, forward = with_none(table.sequence[rows], -1), with_none(table.forward[rows], -1)
    makes = operators & (sequence >= 0) & (forward <= 0)
    made = dict(zip(sequence[makes].tolist(), module[makes].tolist(), strict=True))  # the last has made the node
    backward = innermost(parent, (forward > 0) | _says(table, lambda text: text.startswith(BACKWARD))[name])
    optimizer = innermost(parent, _says(table, lambda text: text.startswith("Optimizer.step"))[name])
    phase = np.where(optimizer >= 0, 2, np.where(backward >= 0, 1, 0)).astype(np.int32)
    numbers, which = np.unique(sequence[backward], return_inverse=True)
    theirs = np.array([made.get(number, -1) for number in numbers.tolist()], np.int32)[which]
    module = np.where(phase == 0, module, np.where(phase == 1, theirs, -1)).astype(np.int32)
    correlation, inputs = with_none(table.correlation[rows], -1), with_none(table.inputs[rows], -1)
    return _Host(kind, correlation, with_none(seconds, 0.0), name, parent, operator, inputs, module, phase)


def _sum_launched(table: Table, host: _Host, correlation: Int64s, seconds: Floats) -> tuple[OperatorCalls, ...]:
    """Of what ran on the device for `seconds` each, with the correlation numbers of its launches."""
    calls = np.flatnonzero(np.isin(host.kind, (EventKind.LAUNCH, EventKind.SYNC)) & (host.correlation >= 0))
    calls = np.append(-1, calls[np.argsort(host.correlation[calls], kind="stable")])
    numbers = host.correlation[calls]
    last = np.searchsorted(numbers, correlation, side="right") - 1
    launch = np.where((correlation >= 0) & (last >= 0) & (numbers[last] == correlation), calls[last], -1)
    operator = host.operator[launch]
    graph = _says(table, lambda text: text.startswith(GRAPH_LAUNCHES))[host.name[launch]]
    name = np.where(graph, _FROM_GRAPH, np.where(operator >= 0, host.name[operator], host.name[launch]))
    inputs = np.where(graph, -1, host.inputs[operator])
    return _sum(table, (name, host.module[launch], host.phase[launch], inputs), seconds)


def _sum_alone(table: Table, host: _Host, rows: Int64s) -> tuple[OperatorCalls, ...]:
    """Of the operators in `rows` by their own time, without that of nested ones."""
    around = host.operator[host.parent]
    inner = np.flatnonzero((host.operator == np.arange(len(around))) & (around >= 0))
    nested = np.bincount(around[inner], host.seconds[inner], len(around))
    own = np.maximum(0.0, host.seconds - nested)[rows]
    return _sum(table, (host.name[rows], host.module[rows], host.phase[rows], host.inputs[rows]), own)


def _sum(table: Table, keys: tuple[np.ndarray, ...], seconds: Floats) -> tuple[OperatorCalls, ...]:
    """Calls with equal keys together: name, module, pass and inputs."""
    if not len(seconds):
        return ()
    each, where = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
    number, took = np.bincount(where.ravel()), np.bincount(where.ravel(), seconds)
    sums: dict[tuple[str, str, str, tuple[tuple[int, ...], ...], tuple[str, ...]], tuple[int, float]] = {}
    texts = {_NO_LAUNCH: NO_LAUNCH, _FROM_GRAPH: FROM_GRAPH}
    for (name, module, phase, inputs), count, total in zip(each.tolist(), number.tolist(), took.tolist(), strict=True):
        within = table.names[module].removeprefix(MODULE) if module >= 0 else ""
        told = table.inputs_texts[inputs] if inputs >= 0 else b""
        key = (texts.get(name) or table.names[name], within, _PASSES[phase], *_inputs(told))
        before = sums.get(key, (0, 0.0))
        sums[key] = before[0] + count, before[1] + total
    return tuple(OperatorCalls(*key, *value) for key, value in sums.items())


def _inputs(text: bytes) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Sizes and types of the inputs from the trace's words for them; nothing where they are no lists of them."""
    sizes, _, types = text.partition(b"\0")
    try:
        found = shapes_of(msgspec.json.decode(sizes) if sizes else ()), tuple(msgspec.json.decode(types) if types else ())
    except (msgspec.DecodeError, TypeError, ValueError):
        return (), ()
    return found if all(isinstance(one, str) for one in found[1]) else (found[0], ())
