"""Requests from a trace: the columns of Azure, Mooncake, BurstGPT, or plain ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError, SpecError
from windtunnel.serving.load import ServeLoad

COLUMNS = {
    "arrival": ("timestamp", "arrival", "arrived_at", "time"),
    "prompt": ("contexttokens", "input_length", "request tokens", "prompt_tokens", "input_tokens", "isl", "num_prefill_tokens"),
    "output": (
        "generatedtokens",
        "output_length",
        "response tokens",
        "output_tokens",
        "completion_tokens",
        "osl",
        "num_decode_tokens",
    ),
}
"""Fields and the columns that state them, in lower case: of Azure's public traces, Mooncake's, BurstGPT's, Vidur's, and plain."""

LONGEST = 2**31
"""Tokens that no length exceeds."""

MOST = 1 << 30
"""Bytes of a trace that is read."""


def read_trace(path: str | Path, *, concurrency: int | None = None, speed: float = 1.0, most: int | None = None) -> ServeLoad:
    """The requests of a trace file: CSV, or JSON lines, also with .gz.

    Columns: a time (seconds, or a date), prompt tokens and output tokens under the names of `COLUMNS`; Mooncake's have
    milliseconds and `hash_ids`, names of the blocks of 512 tokens of the prompt. Rows without numbers, or with none or negative
    ones, are left out and counted in the notes; rows out of order are sorted. `concurrency`: users who send the rows one after
    the other, whatever their times; `speed`: 2 plays it twice as fast; `most`: only so many first rows. FileError for a file that
    is no trace.
    """
    if not (math.isfinite(speed) and speed > 0.0):
        raise SpecError("speed", speed, "a positive number")
    name = str(path)
    rows = list(read_rows(name))
    if not rows:
        raise FileError("trace", name, "a file with rows")
    fields = {field: _column(rows[0], known) for field, known in COLUMNS.items()}
    if fields["prompt"] is None or fields["output"] is None:
        known = "; ".join(f"{field}: {', '.join(names)}" for field, names in COLUMNS.items())
        raise FileError("trace", name, f"columns of prompt and output tokens ({known})", f"It has {', '.join(map(str, rows[0]))}.")
    milliseconds = "hash_ids" in rows[0]
    good: list[tuple[float, int, int, tuple[int, ...]]] = []
    for row in rows:
        one = _request(row, fields, milliseconds)
        if one is not None:
            good.append(one)
    if not good:
        raise FileError("trace", name, "rows with numbers of prompt and output tokens")
    notes = [f"{len(rows) - len(good)} of {len(rows)} rows have no lengths and were left out"] if len(good) < len(rows) else []
    timed = fields["arrival"] is not None and all(math.isfinite(one[0]) for one in good)
    if any(a[0] > b[0] for a, b in zip(good, good[1:], strict=False)) and timed:
        good.sort(key=lambda one: one[0])
        notes.append("rows were sorted by time")
    good = good[:most]
    if concurrency is None and not timed:
        without = sum(not math.isfinite(one[0]) for one in good) if fields["arrival"] is not None else len(good)
        wanted = f"a time in every row; {without} of {len(good)} rows with lengths have none"
        raise FileError("trace", name, wanted, "Or write --concurrency N, so that N users send the rows.")
    first = good[0][0] if timed else 0.0
    arrival = np.zeros(0) if concurrency is not None else np.array([(one[0] - first) / speed for one in good])
    blocks = tuple(one[3] for one in good) if milliseconds else ()
    prompt, output = (np.array([one[n] for one in good], np.int64) for n in (1, 2))
    return ServeLoad(prompt, output, arrival, concurrency or 0, blocks, 512, tuple(notes))


def read_rows(name: str) -> Iterator[Mapping[str, Any]]:
    """Rows of the file, with column names in lower case."""
    try:
        raw = Path(name).read_bytes()
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(raw)) as file:
                raw = file.read(MOST + 1)
        if len(raw) > MOST:
            raise FileError("trace", name, f"at most {MOST >> 20} MiB")
        text = raw.decode("utf-8-sig")
    except (OSError, EOFError, ValueError) as error:
        raise FileError("trace", name, "a CSV file or JSON lines, also with .gz", f"{error}.") from error
    if text.lstrip()[:1] in ("{", "["):
        yield from _json_rows(text, name)
        return
    for row in csv.DictReader(io.StringIO(text)):
        yield {str(key).strip().lower(): value for key, value in row.items() if key is not None}


def _json_rows(text: str, name: str) -> Iterator[Mapping[str, Any]]:
    """Rows of JSON lines."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise FileError("trace", f"{name}:{number}", "a JSON object in each line") from None
        if not isinstance(row, dict):
            raise FileError("trace", f"{name}:{number}", "a JSON object in each line")
        yield {str(key).lower(): value for key, value in row.items()}


def _column(row: Mapping[str, Any], known: Iterable[str]) -> str | None:
    """The first of the known names that the row has."""
    return next((name for name in known if name in row), None)


def _request(
    row: Mapping[str, Any], fields: Mapping[str, str | None], milliseconds: bool
) -> tuple[float, int, int, tuple[int, ...]] | None:
    """Time, prompt, output and names of blocks of a row; None where it has no lengths."""
    lengths = [_number(row.get(str(fields[field]))) for field in ("prompt", "output")]
    if not all(math.isfinite(value) and 1.0 <= value <= LONGEST for value in lengths):
        return None
    moment = _moment(row.get(fields["arrival"])) if fields["arrival"] is not None else math.nan
    names = row.get("hash_ids")
    blocks = tuple(one for one in names if isinstance(one, int)) if isinstance(names, list) else ()
    return moment / (1e3 if milliseconds else 1.0), int(lengths[0]), int(lengths[1]), blocks


def _number(value: Any) -> float:
    """A number, or not a number."""
    try:
        return float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _moment(value: Any) -> float:
    """Seconds of a number or a date; not a number otherwise."""
    found = _number(value)
    if math.isfinite(found) or not isinstance(value, str):
        return found
    head, _, tail = value.strip().partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
    try:
        return datetime.fromisoformat(head).timestamp() + (float(f"0.{digits}") if digits else 0.0)
    except (ValueError, OverflowError):
        return math.nan
