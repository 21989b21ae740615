"""Reads a source file or text; size, encoding and nesting are checked before anything is parsed.

A JSON file as a value: plain or gzip, with a limit on what it unpacks to.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.base.errors import FileError
from windtunnel.spec.loading.files import parse_json as spec_json
from windtunnel.spec.loading.files import read_text, refuse_constant, shape_trouble

LARGEST = 4 * 2**20
"""Bytes. The longest configurations in use are some tens of KiB."""

_IN_TEXT = ("\n", " --", ".py -")
"""What no path has: the last in a command with short options alone."""
_WANTED = "a text file of at most 4 MiB"


def read_source(source: str | Path) -> tuple[str, str]:
    """(text, where it came from) of a path, or of text given as such: several lines, a JSON object, or a line of flags.

    Raises `FileError` for a file that is missing, empty, larger than 4 MiB or not UTF-8 text.
    """
    if isinstance(source, str) and not source.strip():
        raise FileError("source", source, "a path, or the text of a configuration")
    if isinstance(source, str) and (source.lstrip()[:1] == "{" or source.lstrip()[:2] == "--" or any(map(source.count, _IN_TEXT))):
        if len(source) > LARGEST:
            raise FileError("text", f"{len(source)} characters", _WANTED)
        return source, "text"
    return read_text(Path(source), LARGEST, _WANTED), str(source)


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The object in `text`; `FileError` if it is cut off, is not an object, repeats a key, nests too deep or holds NaN. Limits that
    are Infinity, as transformers writes them (`time_step_limit`), are numbers."""
    try:
        data = spec_json(text, lambda name: refuse_constant(name) if name == "NaN" else float(name))
    except RecursionError:
        raise FileError(where, "objects in each other without end", "at most 50 levels") from None
    except ValueError as error:
        raise FileError(where, " ".join(str(error).split())[:160], "a complete JSON document") from None
    if not isinstance(data, dict):
        raise FileError(where, type(data).__name__, "a JSON object at the top")
    trouble = shape_trouble(data)
    if trouble:
        raise FileError(where, *trouble)
    return data


LARGEST_JSON = 256 * 1024 * 1024
"""Bytes, unpacked."""


def load_json(path: Path, wanted: str, limit: int = LARGEST_JSON) -> Any:
    """The value. FileError for a file that cannot be read, is larger than `limit`, or is no JSON."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise FileError(str(path), f"more than {limit} bytes", wanted)
        return msgspec.json.decode(data)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:120], wanted) from None
