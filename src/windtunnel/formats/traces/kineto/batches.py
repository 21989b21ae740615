"""The events of a trace in batches, and what stands around them, from chunks of its text.

A batch is a piece of the array that ends between two events. It is cut at the last place of the buffer that looks like one; the
decoder proves the guess, since only a cut between two elements leaves valid JSON on its left. A piece that does not decode is
read event by event: an event that is broken is counted and skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.traces.kineto.fields import TraceEvent
from windtunnel.formats.traces.kineto.sources import CHUNK

MOST_HEADER = 64 * 1024 * 1024
MOST_EVENT = 4 * CHUNK
"""Bytes after which an event that does not end is given up."""

_TRIES = 10_000
T = TypeVar("T")
WORDS = re.compile(rb'("\s*:\s*)[+-]?(?:nan|inf|infinity)\b', re.IGNORECASE)  # as C++ prints them; JSON has no word for them
_SCANNER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class Layout(Generic[T]):
    """Where the elements stand, where one may end and the next begin, and their type."""

    array: re.Pattern[bytes]  # up to the bracket of the array
    between: re.Pattern[bytes]  # from the brace of an element to the brace of the next
    kind: type[T]
    what: str

    def decoder(self) -> msgspec.json.Decoder[list[T]]:
        return msgspec.json.Decoder(list[self.kind])  # type: ignore[name-defined]


EVENTS = Layout(
    re.compile(rb'"traceEvents"\s*:\s*\['), re.compile(rb'\}\s*,\s*(?=\{\s*"[^"\\]{0,64}"\s*:)'), TraceEvent,
    "a profiler trace: an object with `traceEvents`, or an array of events",
)  # fmt: skip


@dataclass
class Around:
    """What stands around the events, and what could not be read."""

    fields: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    broken_events: int = 0
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BatchReader(Generic[T]):
    """How the elements are read. `scan` reads those in the first bytes of a text and keeps them, if it can: it answers with the
    elements that it leaves, and with how many it kept."""

    layout: Layout[T]
    decoder: msgspec.json.Decoder[list[T]]
    scan: Callable[[bytes, int], tuple[list[T], int] | None]


def scan_nothing(text: bytes, end: int) -> None:
    """Every element is decoded."""


def batches(
    name: str,
    chunks: Iterator[bytes],
    around: Around,
    layout: Layout[T],
    scan: Callable[[bytes, int], tuple[list[T], int] | None] = scan_nothing,
) -> Iterator[list[T]]:
    """The elements in batches, but for those that `scan` keeps; `around` is filled while they are read.

    FileError for text without their array.
    """
    reader = BatchReader(layout, layout.decoder(), scan)
    buffer, bare = _header(name, chunks, around, layout)
    over = False
    for data in chunks:
        buffer += data
        if over:
            if len(buffer) > MOST_HEADER:
                around.broken.append(f"what follows the events: more than {MOST_HEADER} bytes")
                return
            continue
        events, buffer, over = _take(buffer, around, reader, last=False)
        if events:
            around.events += len(events)
            yield events
    if not over:
        events, buffer, over = _take(buffer, around, reader, last=True)
        around.events += len(events)
        yield events
    if not over and not bare:
        around.broken.append("the text ends inside the events")
    if over and not bare:
        _footer(buffer, around)


def _header(name: str, chunks: Iterator[bytes], around: Around, layout: Layout[T]) -> tuple[bytes, bool]:
    """The text from the first event on, and whether the file is a bare array."""
    buffer = b""
    for data in chunks:
        buffer += data
        start = buffer[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
        if start[:1] == b"[":
            return buffer[buffer.index(b"[") + 1 :], True
        if (match := layout.array.search(buffer)) is not None:
            around.fields.update(
                _object(buffer[: match.start()].rstrip().rstrip(b",") + b"}", around, "what stands before the events")
            )
            return buffer[match.end() :], False
        if len(buffer) > MOST_HEADER:
            break
    raise FileError(name, "JSON without the array that is read", layout.what)


_USUAL_EVENT = 64 * 1024
"""Characters that hold nearly every event."""


def _take(buffer: bytes, around: Around, reader: BatchReader[T], last: bool) -> tuple[list[T], bytes, bool]:
    """Events that end in the buffer, the text after them, and whether the array ended."""
    if (match := _last_place(buffer, reader.layout.between)) is not None:
        events = _decode(buffer, match.start() + 1, around, reader)
        if events is not None and not last:
            return events, buffer[match.end() :], False
        if events is not None:
            more, rest, over = _one_by_one(buffer[match.end() :], around, reader.layout, last)
            return events + more, rest, over
    return _one_by_one(buffer, around, reader.layout, last)


def _decode(buffer: bytes, end: int, around: Around, reader: BatchReader[T]) -> list[T] | None:
    """The elements in the first `end` bytes but for those that were scanned; None where that is not valid JSON."""
    if (scanned := reader.scan(buffer, end)) is not None:
        left, kept = scanned
        around.events += kept
        return left
    text = b"[" + buffer[:end] + b"]"
    for attempt in (text, None):
        try:
            return reader.decoder.decode(WORDS.sub(rb"\1null", text) if attempt is None else text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _last_place(buffer: bytes, between: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """The last place that looks like one between two events; None where there is none near the end."""
    cut = len(buffer)
    for _ in range(_TRIES):
        cut = buffer.rfind(b"}", 0, cut)
        if cut < 0:
            return None
        if (match := between.match(buffer, cut)) is not None:
            return match
    return None


def _one_by_one(buffer: bytes, around: Around, layout: Layout[T], last: bool) -> tuple[list[T], bytes, bool]:
    """The same, event by event."""
    text = WORDS.sub(rb"\1null", buffer).decode("utf-8", "surrogateescape")
    between = re.compile(layout.between.pattern.decode()[2:])  # the brace before it may be what is missing
    one = msgspec.json.Decoder(layout.kind)
    events: list[T] = []
    at = 0
    while True:
        at = _skip(text, at, " \t\r\n,")
        if at >= len(text):
            return events, b"", False
        if text[at] == "]":
            return events, text[at + 1 :].encode("utf-8", "surrogateescape"), True
        try:
            value, end = _next_value(text, at, between)
            if not last and _skip(text, end, " \t\r\n") >= len(text) and not isinstance(value, dict):
                return events, text[at:].encode("utf-8", "surrogateescape"), False
            if (event := _element(value, one)) is None:
                around.broken_events += 1
            else:
                events.append(event)
            at = end
        except (ValueError, RecursionError):
            following = between.search(text, at + 1)
            if following is None and not last and len(text) - at <= MOST_EVENT:
                return events, text[at:].encode("utf-8", "surrogateescape"), False
            around.broken_events += 1
            if following is None:
                return events, b"", False
            at = following.end()


def _next_value(text: str, at: int, between: re.Pattern[str]) -> tuple[object, int]:
    """The JSON value that begins at `at`, and where it ends; ValueError where none does.

    It is looked for in a short piece first: an error counts the lines before it, which takes as long as the text is long.
    """
    piece = text[at : at + _USUAL_EVENT]
    try:
        value, end = _SCANNER.raw_decode(piece, 0)
        return value, at + end
    except ValueError:
        following = between.search(text, at + 1)
        until = len(text) if following is None else following.start() + 1
        if until - at <= _USUAL_EVENT or following is None and len(piece) == len(text) - at:
            raise
        value, end = _SCANNER.raw_decode(text[at:until], 0)
        return value, at + end


def _element(value: object, decoder: msgspec.json.Decoder[T]) -> T | None:
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
        return decoder.decode(text)
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
        value = json.loads(WORDS.sub(rb"\1null", text).decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        around.broken.append(what)
        return {}
    return value if isinstance(value, dict) else {}


def _skip(text: str, at: int, blanks: str) -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at
