"""Events of a profiler's trace out of its text: the typed interface of cpp/trace/."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine import _core

_Text = bytes  # a column is called bytes


@dataclass(frozen=True)
class ScannedEvents:
    """R complete events of a piece of a trace in columns, in the order of the text. Texts and places count over all pieces.

    `new_names`: those that were first met here, as JSON; of `new_places` category, process and thread, each with its length
    before it, or `-`; of `new_inputs` an operator's sizes and types of inputs as written, a zero byte between. `phases` and
    `counts`: all events by their phase. `noted` [N]: rows whose arguments stand in the text from `arguments_begin` to
    `arguments_end`. `others_begin`, `others_end` [O]: where events stand that are no complete ones.
    """

    events: int
    new_places: list[_Text]
    new_names: list[_Text]
    new_inputs: list[_Text]
    phases: list[_Text]
    place: Int32s  # [R]
    name: Int32s
    begin: Floats  # us; NaN where there is none, as in `duration` and `bytes`
    duration: Floats
    correlation: Int64s  # -1 none, as in `external`, `stream` and `device`
    external: Int64s
    stream: Int64s
    device: Int64s
    sequence: Int32s  # -1 none, as in `forward` and `inputs`
    forward: Int32s
    inputs: Int32s
    bytes: Floats
    noted: Int64s
    arguments_begin: Int64s
    arguments_end: Int64s
    others_begin: Int64s
    others_end: Int64s
    counts: Int64s


class EventScanner:
    """Reads a trace piece by piece."""

    def __init__(self) -> None:
        self._core = _core.TraceScanner()

    def scan(self, text: bytes, end: int) -> ScannedEvents | None:
        """The events in the first `end` bytes, with commas between them.

        None where they hold anything that is not plain valid JSON, or a value that needs a closer look: another reader has to
        read the piece, and nothing of it is kept here.
        """
        found = self._core.scan(text, end)
        return None if found is None else ScannedEvents(**found)


def longer_first(events: Int32s, begin: Floats, seconds: Floats) -> Int32s:
    """[H] rows of `begin` and `seconds` in order of their begin: of those that begin together the longer first, else as given."""
    return _core.longer_first(events, begin, seconds)


def enclosing(events: Int32s, lanes: Int32s, begin: Floats, seconds: Floats) -> Int32s:
    """[H] the event around each of `events` on its lane, by its place among them; -1: none.

    `events` [H]: rows of `begin` and `seconds`, in order of their begin, the longer first; `lanes` [H] >= 0.
    """
    return _core.enclosing(events, lanes, begin, seconds)


def innermost(around: Int32s, marked: Bools) -> Int32s:
    """[H] the nearest event at or around each one that is marked; -1: none. What is `around` an event stands before it."""
    return _core.innermost(around, marked.view(np.uint8))
