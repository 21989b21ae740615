"""Status dumps of NCCL's RAS, as `ncclras` prints them: communicators whose ranks are at different operations, or missing.

Forms of src/ras/client_support.cc of NCCL 2.24 to 2.28. A block `#0-0 (hash) MISMATCH` says how many ranks have launched how many
operations of a kind, and lists those that differ from most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_BLOCK = re.compile(r"^#(?P<id>\d+(?:-\d+)?) \((?P<hash>[0-9a-f]+)\) (?P<status>[A-Z]+)")
_KIND = re.compile(r"ranks have different (?P<what>[\w ]+?) (?:operation )?counts")
_COUNT = re.compile(r"(?P<ranks>\d+) ranks? ha(?:ve|s) launched up to operation (?P<operation>\d+)")
_RANK = re.compile(
    r"Rank (?P<rank>\d+)(?: has launched up to operation (?P<operation>\d+))?(?: has status (?P<status>\w+))? -- "
    r"GPU (?P<gpu>\d+) managed by process (?P<process>\d+) on node (?P<node>\S+)"
)
_SUMMARY = re.compile(r"^\s*(?P<nodes>\d+)\s+\d+\s+\d+\s+(?P<processes>\d+)\s+(?P<gpus>\d+)\s*$")


@dataclass
class _Communicator:
    """A communicator that RAS warns of: ranks by the last operation that they launched, and the ranks that it lists."""

    name: str
    status: str
    what: str = "collective"
    counts: dict[int, int] = field(default_factory=dict)
    listed: list[tuple[int, int, str, int | None]] = field(default_factory=list)
    """(rank, GPU, node, operation) of each rank that is listed."""
    words: list[str] = field(default_factory=list)


def recognises(head: Head) -> bool:
    """The job summary of RAS, or a communicator's block."""
    text = head.text
    return ("Job summary" in text and "Communicators..." in text) or any(_BLOCK.match(line) for line in head.lines[:500])


def read(files: Sequence[Path], context: Context) -> Reading:
    """The communicators that RAS warns of and the ranks that differ. FileError for a file without a summary or a block."""
    found: list[_Communicator] = []
    facts: dict[str, Any] = {}
    broken: list[str] = []
    for path in files:
        lines = LogLines(path, context.progress)
        for text in lines:
            _take_line(text, found, facts)
        broken.extend(lines.broken)
    if not found and not facts:
        raise FileError(str(files[0]), "no communicator of NCCL's RAS", "what `ncclras` prints")
    texts = [line for one in found for line in _verdict(one)]
    culprits = {str(rank): f"on GPU {gpu} of node {node}" for one in found for rank, gpu, node, _ in one.listed}
    text = "\n".join(texts) or "RAS warns of no communicator: all ranks are at the same operations"
    hang = {"culprits": culprits, "waits": {}, "chain": [], "cycle": [], "stuck": [], "text": text}
    facts |= {"communicators": [vars(one) | {"words": " ".join(one.words)} for one in found], "hang": hang}
    return Reading(
        "nccl-ras", Content.EVIDENCE, facts, facts, (f"{len(found)} communicators that RAS warns of",), (), (), tuple(broken)
    )


def _take_line(text: str, found: list[_Communicator], facts: dict[str, Any]) -> None:
    if (block := _BLOCK.match(text.strip())) is not None:
        found.append(_Communicator(f"#{block['id']}", block["status"]))
    elif not found:
        if (summary := _SUMMARY.match(text)) is not None and "gpus" not in facts:
            facts |= {key: int(value) for key, value in summary.groupdict().items()}
    elif (kind := _KIND.search(text)) is not None:
        found[-1].what = kind["what"]
    elif (count := _COUNT.search(text)) is not None:
        found[-1].counts[int(count["operation"])] = int(count["ranks"])
    elif (rank := _RANK.search(text)) is not None:
        operation = int(rank["operation"]) if rank["operation"] else None
        found[-1].listed.append((int(rank["rank"]), int(rank["gpu"]), rank["node"], operation))
    elif text.strip() and len(found[-1].words) < 20:
        found[-1].words.append(text.strip()[:200])


def _verdict(one: _Communicator) -> list[str]:
    ranks = sorted(rank for rank, _, _, _ in one.listed)
    nodes = sorted({node for _, _, node, _ in one.listed})
    where = f"{format_ranks(ranks)} (on {', '.join(nodes)})" if ranks else "ranks that it does not list"
    if not one.counts:
        return [f"communicator {one.name} is {one.status.lower()}: {where}. {' '.join(one.words)[:300]}".rstrip(". ")]
    usual = max(one.counts, key=lambda operation: one.counts[operation])
    lines = []
    for operation, count in sorted(one.counts.items()):
        if operation == usual:
            continue
        own = sorted(rank for rank, _, _, said in one.listed if said in (None, operation))
        who = f"{format_ranks(own)} (on {', '.join(nodes)})" if own else f"{count} ranks"
        most = f"the other {one.counts[usual]} {usual}"
        if operation > usual:
            why = f"they make a call more than the others, or the {one.counts[usual]} are late and have not come to it"
        else:
            why = "they are late: the others wait for them"
        lines.append(f"{who}: launched {one.what} {operation} of communicator {one.name}, {most}; {why}")
    return lines
