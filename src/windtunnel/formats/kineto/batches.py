"""The events of a trace in batches, and what stands around them, from chunks of its text.

A batch is a piece of the array that ends between two events. It is cut at the last place of the buffer that looks like one; the
decoder proves the guess, since only a cut between two elements leaves valid JSON on its left. A piece that does not decode is
read event by event: an event that is broken is counted and skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windtunnel.base.errors import FileError
from windtunnel.formats.kineto.fields import TraceEvent
from windtunnel.formats.kineto.sources import CHUNK

MOST_HEADER = 64 * 1024 * 1024
MOST_EVENT = 4 * CHUNK
"""Bytes after which an event that does not end is given up."""

_TRIES = 10_000
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*"[^"\\]{0,64}"\s*:)')
_BETWEEN_TEXT = re.compile(r',\s*(?=\{\s*"[^"\\]{0,64}"\s*:)')
_WORDS = re.compile(rb'("\s*:\s*)[+-]?(?:nan|inf|infinity)\b', re.IGNORECASE)  # as C++ prints them; JSON has no word for them
_DECODER = msgspec.json.Decoder(list[TraceEvent])
_ONE = msgspec.json.Decoder(TraceEvent)
_SCANNER = json.JSONDecoder(strict=False)


@dataclass
class Around:
    """What stands around the events, and what could not be read."""

    fields: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    broken_events: int = 0
    broken: list[str] = field(default_factory=list)


def batches(name: str, chunks: Iterator[bytes], around: Around) -> Iterator[list[TraceEvent]]:
    """The events in batches; `around` is filled while they are read. FileError for text without an array of events."""
    buffer, bare = _header(name, chunks, around)
    over = False
    for data in chunks:
        buffer += data
        if over:
            if len(buffer) > MOST_HEADER:
                around.broken.append(f"what follows the events: more than {MOST_HEADER} bytes")
                return
            continue
        events, buffer, over = _take(buffer, around, last=False)
        if events:
            around.events += len(events)
            yield events
    if not over:
        events, buffer, over = _take(buffer, around, last=True)
        around.events += len(events)
        yield events
    if not over and not bare:
        around.broken.append("the text ends inside the events")
    if over and not bare:
        _footer(buffer, around)


def _header(name: str, chunks: Iterator[bytes], around: Around) -> tuple[bytes, bool]:
    """The text from the first event on, and whether the file is a bare array."""
    buffer = b""
    for data in chunks:
        buffer += data
        start = buffer[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
        if start[:1] == b"[":
            return buffer[buffer.index(b"[") + 1 :], True
        if (match := _ARRAY.search(buffer)) is not None:
            around.fields.update(
                _object(buffer[: match.start()].rstrip().rstrip(b",") + b"}", around, "what stands before the events")
            )
            return buffer[match.end() :], False
        if len(buffer) > MOST_HEADER:
            break
    raise FileError(
        name, "JSON without an array of trace events", "a profiler trace: an object with `traceEvents`, or an array of events"
    )


def _take(buffer: bytes, around: Around, last: bool) -> tuple[list[TraceEvent], bytes, bool]:
    """Events that end in the buffer, the text after them, and whether the array ended."""
    if (match := _last_place(buffer)) is not None:
        text = b"[" + buffer[: match.start() + 1] + b"]"
        for attempt in (text, None):
            try:
                events = _DECODER.decode(_WORDS.sub(rb"\1null", text) if attempt is None else text)
                if not last:
                    return events, buffer[match.end() :], False
                more, rest, over = _one_by_one(buffer[match.end() :], around, last)
                return events + more, rest, over
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return _one_by_one(buffer, around, last)


def _last_place(buffer: bytes) -> re.Match[bytes] | None:
    """The last place that looks like one between two events; None where there is none near the end."""
    cut = len(buffer)
    for _ in range(_TRIES):
        cut = buffer.rfind(b"}", 0, cut)
        if cut < 0:
            return None
        if (match := _BETWEEN.match(buffer, cut)) is not None:
            return match
    return None


def _one_by_one(buffer: bytes, around: Around, last: bool) -> tuple[list[TraceEvent], bytes, bool]:
    """The same, event by event."""
    text = _WORDS.sub(rb"\1null", buffer).decode("utf-8", "surrogateescape")
    events: list[TraceEvent] = []
    at = 0
    while True:
        at = _skip(text, at, " \t\r\n,")
        if at >= len(text):
            return events, b"", False
        if text[at] == "]":
            return events, text[at + 1 :].encode("utf-8", "surrogateescape"), True
        try:
            value, end = _SCANNER.raw_decode(text, at)
            if not last and _skip(text, end, " \t\r\n") >= len(text) and not isinstance(value, dict):
                return events, text[at:].encode("utf-8", "surrogateescape"), False
            if (event := _event(value)) is None:
                around.broken_events += 1
            else:
                events.append(event)
            at = end
        except (ValueError, RecursionError):
            following = _BETWEEN_TEXT.search(text, at + 1)
            if following is None and not last and len(text) - at <= MOST_EVENT:
                return events, text[at:].encode("utf-8", "surrogateescape"), False
            around.broken_events += 1
            if following is None:
                return events, b"", False
            at = following.end()


def _event(value: object) -> TraceEvent | None:
    if not isinstance(value, dict):
        return None
    if not isinstance(value.get("args", {}), dict):
        value = {**value, "args": {}}
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:  # bytes that are not UTF-8, in a name as a rule
        flat = {key: _clean(one) for key, one in value.items() if not isinstance(one, dict)}
        text = msgspec.json.encode(flat)
    except (OverflowError, RecursionError, TypeError):
        return None
    try:
        return _ONE.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _clean(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else str(value) if isinstance(value, list) else value


def _footer(buffer: bytes, around: Around) -> None:
    rest = buffer.strip().lstrip(b",").strip()
    if rest in (b"", b"}"):
        if not rest:
            around.broken.append("the text ends before its last brace")
        return
    around.fields.update(_object(b"{" + rest, around, "what follows the events"))


def _object(text: bytes, around: Around, what: str) -> dict[str, Any]:
    try:
        value = json.loads(_WORDS.sub(rb"\1null", text).decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        around.broken.append(what)
        return {}
    return value if isinstance(value, dict) else {}


def _skip(text: str, at: int, blanks: str) -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at
