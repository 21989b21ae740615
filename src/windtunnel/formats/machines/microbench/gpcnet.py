"""GPCNet's tables: latencies and rates of random rings and collectives, alone and under congestion, with the factors between both.

Boxes of `|` and `+`: a title, a row `Name | … | Units`, a row a test; the last box has the congestion impact factors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines, facts_of_logs

_KNOWN_BY = re.compile(r"^[ \t]*Network(?:Load)? Tests v\d", re.MULTILINE)
_SIZE = re.compile(r"Test with (\d{1,9}) MPI ranks \((\d{1,9}) nodes\)")
_REFUSED = re.compile(r"ERROR: this application must be run on at least \d+ nodes")
_NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?)X?")
_MOST = 10_000


def recognises(head: Head) -> bool:
    """The line with the version, or the error of a run on too few nodes."""
    return _KNOWN_BY.search(head.text) is not None or _REFUSED.match(head.text.lstrip()) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """Values of each test by table. FileError for files without a table."""
    facts, broken = facts_of_logs(files, context, _facts)
    built = (f"{len(facts['tables'])} tables of {facts['ranks']} ranks on {facts['nodes']} nodes",)
    return Reading("gpcnet", Content.SETTINGS, facts, facts, built, (), (), tuple(broken))


def _facts(lines: LogLines) -> dict[str, Any]:
    facts: dict[str, Any] = {"ranks": 0, "nodes": 0, "tables": {}}
    table: dict[str, Any] | None = None
    names: list[str] = []
    for text in lines:
        line = text.strip()
        if match := _SIZE.search(line):
            facts["ranks"], facts["nodes"] = int(match[1]), int(match[2])
        elif match := _REFUSED.match(line):
            raise FileError(str(lines.path), f"a run of GPCNet that did not begin: {match[0]}", "a run on as many nodes")
        if not (line.startswith("|") and line.endswith("|") and len(line) > 1) or len(facts["tables"]) > _MOST:
            continue
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if len(cells) == 1:
            table = facts["tables"].setdefault(" ".join(cells[0].split()), {})
        elif cells[0] == "Name":
            names = cells[1:]
        elif cells[0] == "":
            names = cells[1:]  # a second line of the header: what the factor is of
        elif table is not None and len(cells) == len(names) + 1 and len(table) < _MOST:
            table[cells[0]] = {name: _value(cell) for name, cell in zip(names, cells[1:], strict=True)}
    facts["tables"] = {title: rows for title, rows in facts["tables"].items() if rows}
    if not facts["tables"]:
        raise FileError(str(lines.path), "no table of GPCNet", "what network_test or network_load_test print")
    return facts


def _value(cell: str) -> float | str:
    match = _NUMBER.fullmatch(cell)
    return float(match[1]) if match else cell
