"""Text as it lies in people's folders: with a byte order mark, in UTF-16, or with a launcher's prefix before each line."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Reading

_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[\d+,\d+\]<std(?:out|err)>:\s?",  # mpirun --tag-output
        r"\[(?:default|rank|trainer)\d+\]: ?",  # torchrun
        r"\[(?:pod/)?[\w.-]+(?:/[\w.-]+)+\] ",  # kubectl logs --prefix
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) ",  # kubectl logs --timestamps, docker logs -t
        r"[\w.-]+ +\| ",  # docker compose
        r"(?!(?i:(?:\w{1,20}_)?(?:steps?|iter(?:ation)?|epoch|batch|update|loss)): )[A-Za-z][\w.-]*: (?=.)",  # pdsh, pssh
        r"\s*\d+:(?!\d\d:\d\d) ?",  # srun --label; no time of day
    )
)
_SHARE = 0.9
"""Of the lines of a head that must have the same kind of prefix. A head has more of them than of another program's lines."""
_LEAST = 3
_CHUNK = 2**20


def prefix_of(head: Head) -> re.Pattern[str] | None:
    """What stands before nearly all lines of a head that have text."""
    lines = [line for line in head.lines[:400] if line.strip()]
    if len(lines) < _LEAST:
        return None
    return next((p for p in _PREFIXES if sum(p.match(line) is not None for line in lines) >= _SHARE * len(lines)), None)


def without_prefix(head: Head, prefix: re.Pattern[str]) -> Head:
    """The head as the program wrote it."""
    return replace(head, data="".join(prefix.sub("", line, count=1) + "\n" for line in head.lines).encode())


def copy_decoded(path: Path, encoding: str, stack: ExitStack) -> Path:
    """A copy of the file in UTF-8 without a mark. FileError for bytes that the encoding does not have."""
    copy = _new_path(path, stack)
    try:
        with path.open(encoding=encoding, newline="") as source, copy.open("w", encoding="utf-8", newline="") as target:
            shutil.copyfileobj(source, target, _CHUNK)
    except UnicodeError as error:
        raise FileError(str(path), f"bytes that are not {encoding.removesuffix('-sig').upper()}", "text", f"{error}.") from None
    return copy


def copy_without_prefix(path: Path, prefix: re.Pattern[str], stack: ExitStack) -> Path:
    """A copy of the file without the prefix of its lines."""
    from windtunnel.formats.text.lines import LogLines

    copy = _new_path(path, stack)
    with copy.open("w", encoding="utf-8") as target:
        target.writelines(prefix.sub("", line, count=1) + "\n" for line in LogLines(path))
    return copy


def name_originals(reading: Reading, copies: dict[Path, Path]) -> Reading:
    """The reading with the user's files in its notes, in place of their copies, and a note that says what was taken off."""
    notes = (reading.built, reading.ignored, reading.assumed, reading.broken)
    built, ignored, assumed, broken = (tuple(name_originals_in(note, copies) for note in listed) for listed in notes)
    off = "what stands before each line, or marks the encoding, was taken off"
    return replace(reading, built=built, ignored=(*ignored, off), assumed=assumed, broken=broken)


def name_originals_in(note: str, copies: dict[Path, Path]) -> str:
    """A note with the user's files in place of their copies."""
    for copy, path in copies.items():
        note = note.replace(str(copy), str(path))
    return note


def _new_path(path: Path, stack: ExitStack) -> Path:
    """A new path of the same name, since ranks may be told by it; it goes with the stack."""
    return Path(stack.enter_context(TemporaryDirectory(prefix="windtunnel-"))) / path.name.removesuffix(".gz")
