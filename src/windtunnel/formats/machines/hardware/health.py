"""What tools print of a node's parts and their faults: `nvidia-smi -q` and its table, `dcgmi diag`, ibstat, ibv_devinfo, ibstatus,
`ethtool -S`, `rdma statistic`, and counters of /sys/class/infiniband.

Each line becomes a part of the node, a path of names (`ECC Errors/Volatile/SRAM Uncorrectable`) and a value; `health.toml` says
which values are faults. Also of a piece that was pasted. Counters count since the driver was loaded: they don't say when.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_VALUE = re.compile(r"(\s*)([^:|]{1,80}?)\s*(?:\.{3,}|:)(?:\s+(.{0,200}))?$")
_DIAGNOSTIC = re.compile(r"\s*\|(.{10,60}?)\|(.*)\|\s*$")
_LINK = re.compile(r"link (\w+/\d+) ((?:\w+ \d+ ?)+)")
_SYSFS = re.compile(r"(?:.*/)?(\w+)/ports/(\d+)/(?:hw_)?counters/(\w+)(?::|\s+)(\d+)\s*$")
_GPU = re.compile(r"\|\s+(\d+)\s+(\S.{0,40}?)\s+(?:On|Off|N/A)?\s*\|\s*([0-9A-Fa-f:.]{12,16})\s+(?:On|Off|N/A)\s*\|\s*(\S+)")
_USED = re.compile(r"\|.*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|")
_NUMBER = re.compile(r"\d+")
_MOST = 10_000
_SHOWN = 50


def recognises(head: Head) -> bool:
    """A mark of one of the tools."""
    return _kind_of(head.text) is not None


def _kind_of(text: str) -> str | None:
    return next((name for name, kind in _kinds().items() if kind["mark"].search(text) is not None), None)


@cache
def _kinds() -> dict[str, dict[str, Any]]:
    """By tool: its mark, what names a part, and its rules (pattern of a path, pattern of a value or None for above 0, words)."""
    return {
        name: {
            "tool": kind["tool"],
            "noun": kind.get("noun", ""),
            "mark": re.compile(kind["mark"], re.MULTILINE),
            "part": re.compile(kind["part"]),
            "rules": [(re.compile(path), re.compile(value) if value else None, says) for path, value, says in kind["rules"]],
        }
        for name, kind in table_beside(__file__).items()
    }


def read(files: Sequence[Path], context: Context) -> Reading:
    """Parts of the node and the faults that the text tells of. FileError where no line has a value."""
    faults: dict[str, int] = {}
    parts: set[str] = set()
    facts: dict[str, Any] = {}
    broken: list[str] = []
    count = 0
    for path in files:
        listed = list(LogLines(path, context.progress, broken))
        name = _kind_of("\n".join(listed)) or next(iter(_kinds()))
        kind = _kinds()[name]
        facts.setdefault("tool", kind["tool"])
        for part, key, value in _values(name, kind["part"], listed):
            count += 1
            if part:
                part = f"{kind['noun']} {part}".strip()
                parts.add(part)
            for fault in _faults(kind["rules"], part, key, value):
                if fault in faults or len(faults) < _MOST:
                    faults[fault] = faults.get(fault, 0) + 1
        if used := [match for text in listed if (match := _USED.search(text))]:
            facts["memory_used_bytes"] = [int(match[1]) * 2**20 for match in used]
            facts["memory_bytes"] = [int(match[2]) * 2**20 for match in used]
    if not count:
        raise FileError(
            str(files[0]), "no value of a part of a node", "what nvidia-smi -q, dcgmi diag, ibstat or ethtool -S print, whole"
        )
    told = list(faults)
    said = told or [f"none of the {count} values here tells of a fault; what a tool does not print can be wrong all the same"]
    facts |= {"parts": len(parts), "values": count, "faults": told[:_SHOWN]}
    hang = {"culprits": {}, "waits": {}, "chain": [], "cycle": [], "stuck": [], "text": "\n".join(said[:_SHOWN])}
    ignored = ("the job's ranks: these tools number the parts of a node, not ranks",) if told else ()
    return Reading(
        "node-health", Content.EVIDENCE, facts, {**facts, "hang": hang}, tuple(said[:_SHOWN]), ignored, (), tuple(broken)
    )


def _faults(rules: Iterable[tuple[re.Pattern[str], re.Pattern[str] | None, str]], part: str, key: str, value: str) -> Iterator[str]:
    for path, wanted, says in rules:
        if path.search(key) is None:
            continue
        number = _NUMBER.match(value)
        matched = wanted.search(value) if wanted is not None else number if number is not None and int(number[0]) > 0 else None
        if matched is not None:
            said = says.format(value=value.strip(), name=key.rpartition("/")[2])
            yield f"{part}: {said}" if part else said
            return


def _values(name: str, part: re.Pattern[str], lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(part of the node, path, value) of each line that has a value."""
    if name == "dcgmi-diag":
        yield from _test_results(lines)
    elif name == "nvidia-smi":
        for text in lines:
            if (gpu := _GPU.search(text)) is not None:
                yield f"GPU {gpu[1]} at {gpu[3]}", "ECC", gpu[4]
            for broken in re.findall(r"ERR!|Unknown Error", text):
                yield "", "state", broken
    else:
        for text in lines:
            if (link := _LINK.match(text)) is not None:
                pairs = link[2].split()
                yield from ((link[1], counter, number) for counter, number in zip(pairs[::2], pairs[1::2], strict=False))
            elif (counter := _SYSFS.match(text)) is not None:
                yield f"{counter[1]}/{counter[2]}", counter[3], counter[4]
        yield from _indented_values(part, lines)


def _indented_values(part: re.Pattern[str], lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Values of lines `name : value` below the headings that their indentation gives; `part` finds the name of a part."""
    named, above = "", list[tuple[int, str]]()
    for text in lines:
        text = text.expandtabs(8).rstrip()
        if (found := part.match(text)) is not None:
            groups = [group for group in found.groups() if group]
            named = f"{named.partition(' port')[0]} port {groups[0]}" if re.match(r"\s*[Pp]ort", text) else " port ".join(groups)
            above = []
            continue
        match = _VALUE.match(text)
        if match is None and not (text.strip() and not text.strip().startswith(("[", "<"))):
            continue
        indent = len(match[1]) if match is not None else len(text) - len(text.lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        name = (match[2] if match is not None else text).strip()
        if match is not None and match[3]:
            yield named, "/".join((*(one for _, one in above), name)), match[3]
        else:
            above.append((indent, name))


def _test_results(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Tests of `dcgmi diag` with their results; a warning below a test is its reason, over several lines."""
    test, reason, failed = "", "", ""
    for text in [*lines, "| end | |"]:
        row = _DIAGNOSTIC.match(text)
        first, second = (row[1].strip(), row[2].strip()) if row is not None else ("", "")
        if row is not None and not first and reason:
            reason += second if second[:1].islower() and reason[-1:].isalpha() and len(second) > 40 else f" {second}"
        elif row is not None and first.startswith(("Warning", "Info", "Error")):
            reason += f" {second}"
        elif row is not None and (first or second):
            if failed:
                yield "", test, f"{failed}{':' if reason else ''}{reason[:300]}"
            failed = second if re.match(r"Fail", second) else ""
            reason, test = "", first or test
            if second and not failed:
                yield "", test, second
