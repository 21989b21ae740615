"""Files that people have beside those that are read: each is refused by what it is, with what to give instead."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside, without_gz
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Context
from windtunnel.formats.text.tool_marks import describe_log, tool_of_text

_NO_COLUMN = re.compile(r"[={}\[\]]|^--|^-?\d+(?:\.\d+)?$")
"""What no column's name looks like: settings, lists, flags and numbers."""
_FAULTS = re.compile(r"Fault ranks: \[")
_DCGM = re.compile(r"#?\s*DCGM_FI_\w+,\s*(?:gauge|counter|label|histogram)\s*,.*")
_HTML = re.compile(r"\s*<(?:!doctype html|html|head|table|h\d)\b", re.IGNORECASE)
_SECTION = re.compile(r"\[\[?[\w.\"' -]+\]\]?(?:\s*#.*)?")
_LIST = re.compile(r"\[\s*(?:[{\[\]\"]|-?\d+(?:\.\d+)?\s*(?:,|\]\s*$))")
_VIDUR = {"clusters", "schedulers", "traces"}
_MODEL = re.compile(r"--num-layers[ =]\S")
_STAMP = re.compile(r"\[?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d/\d{4}|\d\d:\d\d:\d\d|[IWEF]\d{4} |(?:INFO|WARN|WARNING|ERROR|DEBUG)\b)")
_LOGS = (
    "lines of steps: those of a trainer that is read, or of any, if two agree that name a step and its time, tokens/s, memory or "
    "loss; `NCCL INFO` lines; a table of a benchmark"
)
_TABLES = (
    "a CSV that is read: AICB's calls, SimAI's results, NCCL tuner's tables, `nvidia-smi --query-gpu` with power.draw; "
    "measurements go to `windtunnel validate`"
)


_LOG_NAMES = (".log", ".out", ".err")
_SPOKEN = re.compile(r"--[a-z]|^[ \t]*[{\[]|^[\w.]+\s*[:=]\s*\S+\s*$", re.MULTILINE)
"""What a configuration or a command line has somewhere, and prose of a log need not have."""


def recognises(head: Head) -> bool:
    """Whether the file is one of these."""
    return _describe_file(head) is not None


def read(files: Sequence[Path], context: Context) -> NoReturn:
    """FileError with what the first file is."""
    what, allowed, hint = _describe_file(head_of(files[0])) or (
        "a file of no known kind",
        "a file that `windtunnel catalog formats` lists",
        "",
    )
    raise FileError(str(files[0]), what, allowed, hint)


def _describe_file(head: Head) -> tuple[str, str, str] | None:
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
        return _text(head)
    shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    return f"a table with the columns {shown}", _TABLES, ""


def _text(head: Head) -> tuple[str, str, str] | None:
    """Texts that stand beside what is read; then those that are packed, or prose, and so no configuration."""
    text = head.text
    if text.startswith("PGID ") and "Process Group" in text[:200]:
        return "what an analysis of flight recorder dumps printed", "the dumps themselves", "Import them all: one a rank."
    if _FAULTS.match(text):
        return "a list of faults that were injected", "the traces or dumps beside it", ""
    if sum(_DCGM.fullmatch(line) is not None for line in head.lines[:200]) >= 2:
        return "the list of fields that dcgm-exporter collects", "what it answers at /metrics", ""
    for mark, what, wanted in table_beside(__file__)["shown"]:
        if re.search(mark, text[:4096], re.MULTILINE):
            return what, wanted, ""
    if head.lines and _HTML.match(text):
        return "a page in HTML", "the trace or log that the page was made of", ""
    if head.data[:4] == b"PK\x03\x04":
        return "a ZIP archive or a spreadsheet", "the files in it; tables as CSV", ""
    if _is_prose(head):
        hint = "Copy a log or a table that it quotes into a file of its own."
        return "a document in Markdown without steps of a training or a table that is read", "the log, trace or configuration", hint
    if _is_log(head):
        return describe_log(text, "without a line that is known"), _LOGS, ""
    if text.lstrip()[:1] == "[" and _LIST.match(text):
        return "a list in JSON of no known kind", "what `windtunnel catalog formats` lists", ""
    named = without_gz(head.path).suffix.lower() in _LOG_NAMES
    if text and named and (not _SPOKEN.search(text) or (_free(text) and tool_of_text(text, printed=True))):
        return describe_log(text, "without a line that is known"), _LOGS, ""
    if set(re.findall(r"^(\w+):", text, re.MULTILINE)) >= _VIDUR:
        return "experiments of Vidur, which simulates inference", "configurations of training", ""
    if head.data[257:262] == b"ustar":
        return "an archive without a trace that is read", "its files, unpacked", ""
    if head.packed and not head.text:
        return "a gzip file of no known kind", "a trace, a log or a configuration", ""
    return None


def _is_prose(head: Head) -> bool:
    """Headings of Markdown between lines of prose, with a link, a fence or emphasis; no script, settings or flags of a model."""
    lines = [line for line in head.lines[:2000] if line.strip()]
    headings = sum(re.match(r"#{1,6} \S", line) is not None for line in lines)
    prose = sum(not line.startswith("#") and len(line.split()) >= 8 for line in lines)
    settings = sum(re.match(r"\s*(?:export )?[\w.-]+\s*[:=]", line) is not None for line in lines)
    marks = any(mark in head.text for mark in ("```", "](", "**", "| --- |", "|---|"))
    return headings >= 1 and prose >= 2 and prose > settings and marks and _free(head.text)


def _free(text: str) -> bool:
    """Whether a text is no script and has no flags of a model."""
    return not text.startswith("#!") and _MODEL.search(text) is None


def _is_log(head: Head) -> bool:
    """Most of the first lines begin with a time or a level, as those of a configuration never do."""
    lines = [line for line in head.lines[:200] if line.strip() and not line[0].isspace()]
    if lines and lines[0][0] == "[" and not (_SECTION.fullmatch(lines[0].strip()) or _LIST.match(head.text.lstrip()[:4096])):
        return True
    return len(lines) >= 3 and sum(_STAMP.match(line) is not None for line in lines) >= 0.5 * len(lines)


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
