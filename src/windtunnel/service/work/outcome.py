"""What came of a question: bytes, or an error as the service tells it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError, WindtunnelError, nearest_option
from windtunnel.service.store.queue import error_table

MEDIA = {
    ".html": "text/html; charset=utf-8", ".json": "application/json", ".csv": "text/csv; charset=utf-8", ".svg": "image/svg+xml",
    ".md": "text/markdown; charset=utf-8", ".toml": "text/plain; charset=utf-8", ".yaml": "text/plain; charset=utf-8",
}  # fmt: skip
"""Suffix of an artefact -> its media type; others are bytes."""
BYTES = "application/octet-stream"


@dataclass(frozen=True)
class QuestionOutcome:
    """`body`: the answer, where there is one; `error`: why there is none. `again`: whether it may end otherwise another time."""

    body: bytes | None = None
    media: str = "application/json"
    artefacts: Mapping[str, tuple[bytes, str]] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    log: str = ""
    seconds: float = 0.0
    again: bool = False


def explain(error: WindtunnelError) -> dict[str, str]:
    """An error of windtunnel as a table: `instead` is what to type."""
    kind = type(error).__name__
    if not isinstance(error, SpecError):
        return error_table(kind, str(error))
    return error_table(kind, str(error), error.path, error.allowed, error.hint)


def explain_usage(error: Any, message: str) -> dict[str, str]:
    """An error of a command line that cannot be parsed."""
    name = getattr(getattr(error, "param", None), "opts", None) or [getattr(error, "option_name", "") or ""]
    option = max(name, key=len).lstrip("-")
    known = [o.lstrip("-") for p in getattr(getattr(error.ctx, "command", None), "params", []) for o in p.opts] if error.ctx else []
    near = nearest_option(option, known) if option and option not in known else None
    return error_table("UsageError", message, option, "", f"Did you mean {near}?" if near else "")


def media_of(name: str, data: bytes) -> str:
    """The media type of an artefact by its name; of an answer that is text or bytes, by its content."""
    return MEDIA.get(Path(name).suffix, BYTES)


def text_media(data: bytes) -> str:
    """Of what a verb without --json prints."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return BYTES
    return "text/plain; charset=utf-8"


def read_written(folder: Path, file: str, most: int) -> dict[str, bytes]:
    """What a question wrote as `file`: itself under "", or each file of a folder by its name. Links are not followed; a file of
    more than `most` bytes is left out."""
    found: dict[str, bytes] = {}
    path = folder / file
    if path.is_dir() and not path.is_symlink():
        for inner in sorted(path.rglob("*")):
            if not inner.is_dir() and (data := _read(inner, most)) is not None:
                found[str(inner.relative_to(path))] = data
    elif (data := _read(path, most)) is not None:
        found[""] = data
    return found


def _read(path: Path, most: int) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        told = os.fstat(file.fileno())
        return file.read() if stat.S_ISREG(told.st_mode) and told.st_size <= most else None
