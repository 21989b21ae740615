"""Files that people have beside those that are read: each is refused by what it is, with what to give instead."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Context

_NO_COLUMN = re.compile(r"[={}\[\]]|^--|^-?\d+(?:\.\d+)?$")
"""What no column's name looks like: settings, lists, flags and numbers."""
_TRACELENS = ("TFLOPS/s", "Kernel Time", "Parent cpu_op", "op category", "Total Direct Kernel", "total_direct_kernel", "time ms")
_TABLES = (
    "a CSV that is read: AICB's calls, SimAI's results, NCCL tuner's tables, `nvidia-smi --query-gpu` with power.draw; "
    "measurements go to `windtunnel validate`"
)


def recognises(head: Head) -> bool:
    """Whether the file is one of these."""
    return _told(head) is not None


def read(files: Sequence[Path], context: Context) -> NoReturn:
    """FileError with what the first file is."""
    what, allowed, hint = _told(head_of(files[0])) or (
        "a file of no known kind",
        "a file that `windtunnel import --help` lists",
        "",
    )
    raise FileError(str(files[0]), what, allowed, hint)


def _told(head: Head) -> tuple[str, str, str] | None:
    """(what it is, what is allowed, a hint), or None."""
    if not head.data.strip():
        return "an empty file", "a file with content", ""
    if head.data[:4] == b"PAR1":
        hint = "Of a straggler analysis, import the timeline JSON."
        return "a Parquet table", "the trace, log or timeline that the table was made of", hint
    if head.text.startswith("version https://git-lfs.github.com/spec/"):
        return "a pointer of Git LFS", "the file itself", "`git lfs pull` in the repository fetches it."
    names = _columns(head)
    if names is None:
        return None
    shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    if any(mark in name for name in names for mark in _TRACELENS):
        hint = "`windtunnel runs show TRACE` attributes the same times."
        return f"a table of a trace's analysis ({shown})", "the profiler trace that it was made of", hint
    return f"a table with the columns {shown}", _TABLES, ""


def _columns(head: Head) -> list[str] | None:
    """The names of a CSV's columns: a first line of three names or more, and rows with as many cells. None for anything else."""
    rows = [line for line in head.lines[:40] if line.strip()]
    try:
        cells = list(csv.reader(rows))
    except csv.Error:
        return None
    names = [name.strip() for name in cells[0]] if cells else []
    if len(names) < 3 or any(_NO_COLUMN.search(name) for name in names) or not head.text[:1].strip():
        return None
    same = sum(len(row) == len(names) for row in cells[1:])
    if len(cells) > 1 and same < 0.5 * (len(cells) - 1):
        return None
    return names if len(cells) > 1 or all(re.fullmatch(r"\w+", name) for name in names) else None
