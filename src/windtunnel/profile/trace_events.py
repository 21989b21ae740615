"""The profiler's JSON as events with their nesting."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError

COMPILED = re.compile(r"Call CompiledFxGraph (\w+)|Torch-Compiled Region: (\S+)")
"""Names of events that PyTorch 2's compiler records around a compiled region: the graph's hash, or its number."""


@dataclass(frozen=True, eq=False)
class Event:
    """Times in s. `sequence` and `forward_thread` tie a backward operator to its forward one."""

    name: str
    category: str
    thread: Any
    begin: float
    end: float
    correlation: int | None
    sequence: int | None
    forward_thread: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


def events_of(chrome: Mapping[str, Any]) -> list[Event]:
    """Complete events of `export_chrome_trace`, by begin and then by end, the longer first; time counts from the first one's begin.

    Raises FileError if it is not such a trace.
    """
    rows = chrome.get("traceEvents") if isinstance(chrome, Mapping) else None
    if not isinstance(rows, list):
        raise FileError("trace", "no traceEvents", "what PyTorch's profiler exports as a Chrome trace")
    complete = [row for row in rows if isinstance(row, Mapping) and row.get("ph") == "X" and "dur" in row and "ts" in row]
    zero = min((float(row["ts"]) for row in complete), default=0.0)
    events = [_event(row, zero) for row in complete]
    return sorted(events, key=lambda e: (e.begin, -e.end))


FORMER = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime", "Operator": "cpu_op",
}  # fmt: skip
"""Categories as PyTorch's profiler wrote them before 1.13."""


def _event(row: Mapping[str, Any], zero: float) -> Event:
    """Kineto counts microseconds since the epoch, which leaves a float of seconds a quarter of a microsecond."""
    args = row.get("args") or {}
    begin = (float(row["ts"]) - zero) * 1e-6
    return Event(
        str(row.get("name", "")),
        FORMER.get(str(row.get("cat", "")), str(row.get("cat", ""))),
        (row.get("pid"), row.get("tid")),
        begin,
        begin + float(row["dur"]) * 1e-6,
        args.get("correlation"),
        args.get("Sequence number"),
        int(args.get("Fwd thread id") or 0),
        shapes_of(args.get("Input Dims") or ()),
        tuple(args.get("Input type") or ()),
    )


def shapes_of(entries: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Sizes of each input; of a list of tensors, its first one's."""
    shapes = []
    for one in entries:
        while isinstance(one, list) and one and isinstance(one[0], list):
            one = one[0]
        shapes.append(tuple(int(size) for size in one) if isinstance(one, list) else ())
    return tuple(shapes)


def is_operator(event: Event) -> bool:
    """Whether this is an operator's call, not a mark of the user's or of the compiler's."""
    return event.category == "cpu_op" and not graph_of(event)


def graph_of(event: Event) -> str:
    """Hash or number of the compiled region that this event is the mark of; empty for others."""
    match = COMPILED.search(event.name)
    return (match[1] or match[2]) if match else ""


class Nest:
    """Nesting of host events by thread. Events of one thread nest or follow each other."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.parent: dict[Event, Event] = {}
        self.inside: dict[Event, float] = defaultdict(float)
        open_by_thread: dict[Any, list[Event]] = defaultdict(list)
        for event in events:
            if event.category not in ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"):
                continue
            stack = open_by_thread[event.thread]
            while stack and stack[-1].end <= event.begin:
                stack.pop()
            if stack:
                self.parent[event] = stack[-1]
            stack.append(event)
        for event in self.parent:
            if is_operator(event):
                over = next((e for e in self.events_around(event) if is_operator(e)), None)
                if over is not None:
                    self.inside[over] += event.end - event.begin

    def events_around(self, event: Event) -> list[Event]:
        """The events around `event`, the innermost first."""
        outer = []
        while event in self.parent:
            event = self.parent[event]
            outer.append(event)
        return outer

    def own_seconds(self, event: Event) -> float:
        """s of an operator, excluding nested operators."""
        return max(0.0, event.end - event.begin - self.inside.get(event, 0.0))
