"""Reading what somebody else wrote: size, encoding and nesting are bounded before anything is parsed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.spec.files import shape_trouble

LARGEST = 4 * 2**20
"""Bytes. The longest configurations in use are some tens of KiB."""

_WANTED = "a text file of at most 4 MiB"


def read_source(source: str | Path) -> tuple[str, str]:
    """(text, where it came from) of a path, or of text given as such: several lines, a JSON object, or a line of flags.

    Raises `FileError` for a file that is missing, empty, larger than 4 MiB or not UTF-8 text.
    """
    if isinstance(source, str) and not source.strip():
        raise FileError("source", source, "a path, or the text of a configuration")
    if isinstance(source, str) and _is_text(source):
        if len(source) > LARGEST:
            raise FileError("text", f"{len(source)} characters", _WANTED)
        return source, "text"
    return _file(Path(source)), str(source)


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The object in `text`; `FileError` if it is cut off, is not an object, repeats a key, nests too deep or holds NaN."""
    try:
        data = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
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


def _is_text(source: str) -> bool:
    return "\n" in source or source.lstrip()[:1] == "{" or source.lstrip()[:2] == "--" or " --" in source


def _file(path: Path) -> str:
    shown = str(path)[:200]
    try:
        if path.is_dir():
            raise FileError(shown, "a directory", _WANTED)
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise FileError(shown, "no such file", _WANTED) from None
    except (OSError, ValueError) as error:
        raise FileError(shown, getattr(error, "strerror", None) or str(error), _WANTED) from None
    if len(data) > LARGEST:
        raise FileError(shown, "more than 4 MiB", _WANTED)
    if not data.strip():
        raise FileError(shown, "an empty file", _WANTED)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(shown, "bytes that are not UTF-8 text", _WANTED) from None
    if "\0" in text:
        raise FileError(shown, "a binary file", _WANTED)
    return text


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not a number that can be used")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in names if names.count(key) > 1)!r} is written twice")
    return made
