"""Events that the core reads out of the text into columns: nearly all of an ordinary trace.

The core takes only a piece of text that it is sure of, and what single events need that are no complete ones, or whose arguments
matter one by one, is decoded here. So a trace reads the same with and without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.engine.scan import EventScanner, ScannedEvents
from windtunnel.formats.traces.kineto.batches import WORDS
from windtunnel.formats.traces.kineto.columns import EventColumns, key_of
from windtunnel.formats.traces.kineto.fields import Args, TraceEvent

_COPIED = ("begin", "duration", "correlation", "external", "stream", "device", "bytes")
_LEFT = ("B", "E", "i", "I", "M")
"""Phases of events that are decoded here."""


class TraceScan:
    """Adds the complete events of a trace to its columns, piece by piece."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns, self.scanner = columns, EventScanner()
        self.texts: list[str] = []  # [N] names by the core's number
        self.names = np.empty(0, np.int32)  # [N] their index among the columns' names
        self.places = np.empty(0, np.int32)  # [P] the same of places
        self.arguments: msgspec.json.Decoder[Args] = msgspec.json.Decoder(Args)
        self.others: msgspec.json.Decoder[list[TraceEvent]] = msgspec.json.Decoder(list[TraceEvent])

    def take(self, text: bytes, end: int) -> tuple[list[TraceEvent], int] | None:
        """The events in the first `end` bytes of the text: those that are left, and how many were added to the columns.

        None where the core does not take the piece.
        """
        found = self.scanner.scan(text, end)
        if found is None:
            return None
        columns = self.columns
        left = self._decode_left(text, found)
        for phase, count in zip(found.phases, found.counts.tolist(), strict=True):
            word = phase.decode()
            columns.phases[word] += 0 if word in _LEFT else count  # the others are counted where they are added
        if not len(found.name):
            return left, found.events - len(left)
        self._number_texts(found)
        part: dict[str, np.ndarray[Any, Any]] = {name: getattr(found, name) for name in _COPIED}
        part |= {"name": self.names[found.name], "place": self.places[found.place]}
        columns.append_columns(part, self._decode_noted(text, found))
        return left, found.events - len(left)

    def _number_texts(self, found: ScannedEvents) -> None:
        names, places = self.columns.names, self.columns.places
        texts = [_name(raw) for raw in found.new_names]
        self.texts += texts
        self.names = _extend(self.names, [names.setdefault(text, len(names)) for text in texts])
        self.places = _extend(self.places, [places.setdefault(key_of(_place(raw)), len(places)) for raw in found.new_places])

    def _decode_noted(self, text: bytes, found: ScannedEvents) -> Iterator[tuple[int, Args, str]]:
        """Row, arguments and name of the events whose arguments may matter."""
        numbers = found.name[found.noted].tolist()
        spans = zip(found.arguments_begin.tolist(), found.arguments_end.tolist(), strict=True)
        for row, number, (begin, end) in zip(found.noted.tolist(), numbers, spans, strict=True):
            yield row, self._decode_args(text[begin:end]), self.texts[number]

    def _decode_left(self, text: bytes, found: ScannedEvents) -> list[TraceEvent]:
        parts = [text[b:e] for b, e in zip(found.others_begin.tolist(), found.others_end.tolist(), strict=True)]
        if not parts:
            return []
        joined = b"[" + b",".join(parts) + b"]"
        try:
            return self.others.decode(joined)
        except msgspec.DecodeError:
            return self.others.decode(WORDS.sub(rb"\1null", joined))

    def _decode_args(self, text: bytes) -> Args:
        try:
            return self.arguments.decode(text)
        except msgspec.DecodeError:
            return self.arguments.decode(WORDS.sub(rb"\1null", text))


def _extend(numbers: Int32s, more: list[int]) -> Int32s:
    return np.concatenate((numbers, np.array(more, np.int32))) if more else numbers


def _name(raw: bytes) -> str:
    name = msgspec.json.decode(raw)
    return name if isinstance(name, str) else str(name)


def _place(raw: bytes) -> TraceEvent:
    """An event of a place as the core writes it."""
    values: list[Any] = []
    while raw:
        if raw[:1] == b"-":
            values.append(None)
            raw = raw[1:]
            continue
        length, _, rest = raw.partition(b":")
        values.append(msgspec.json.decode(rest[: int(length)]))
        raw = rest[int(length) :]
    category, process, thread = values
    return TraceEvent(cat=category, pid=process, tid=thread)
