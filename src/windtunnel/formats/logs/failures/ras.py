"""Status dumps of NCCL's RAS, as `ncclras` prints them: communicators whose ranks are at different operations, or missing.

Forms of src/ras/client_support.cc of NCCL 2.24 to 2.31; since 2.28 the client prints JSON too (`ncclras -f json`),
a table of every rank with its counts. A block `#0-0 (hash) MISMATCH` says how many ranks have launched how many
operations of a kind, and lists those that differ from most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.formats.text.source import parse_json

_BLOCK = re.compile(r"^#(?P<id>\d+(?:-\d+)?) \((?P<hash>[0-9a-f]+)\) (?P<status>[A-Z]+)")
_KIND = re.compile(r"ranks have different (?P<what>[\w ]+?) (?:operation )?counts")
_COUNT = re.compile(r"(?P<ranks>\d+) ranks? ha(?:ve|s) launched up to operation (?P<operation>\d+)")
_RANK = re.compile(
    r"Rank (?P<rank>\d+)(?: has launched up to operation (?P<operation>\d+))?(?: has status (?P<status>\w+))? -- "
    r"GPU (?P<gpu>\d+)(?: \(NVML \d+\))? managed by process (?P<process>\d+) on node (?P<node>\S+)"
)
_UNKNOWN_RANK = re.compile(r"Rank (?P<rank>\d+) -- \[process information not found\]|missing ranks?: (?P<ranks>[\d, ]+)")
_HEADING = re.compile(r"=+|Warnings|Errors|Job summary")
_JSON = re.compile(r'"nccl_version"\s*:.*"communicators"\s*:', re.DOTALL)
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
    return (
        (text.lstrip()[:1] == "{" and _JSON.search(text[:4096]) is not None)
        or ("Job summary" in text and "Communicators..." in text)
        or any(_BLOCK.match(line) for line in head.lines[:500])
    )


def read(files: Sequence[Path], context: Context) -> Reading:
    """The communicators that RAS warns of and the ranks that differ. FileError for a file without a summary or a block."""
    found: list[_Communicator] = []
    facts: dict[str, Any] = {}
    broken: list[str] = []
    for path in files:
        if head_of(path).text.lstrip()[:1] == "{":
            _take_table(path, found, facts)
            continue
        for text in LogLines(path, context.progress, broken):
            _take_line(text, found, facts)
    if not found and not facts:
        raise FileError(str(files[0]), "no communicator of NCCL's RAS", "what `ncclras` prints")
    texts = [line for one in found for line in _verdict(one)]
    culprits = {
        str(rank): f"on GPU {gpu} of node {node}" if node else "of an unknown process"
        for one in found
        for rank, gpu, node, _ in one.listed
    }
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
    elif (missing := _UNKNOWN_RANK.search(text)) is not None:
        numbers = re.findall(r"\d+", missing["rank"] or missing["ranks"])
        found[-1].listed += [(int(number), -1, "", None) for number in numbers]
    elif _HEADING.fullmatch(text.strip()):
        return
    elif text.strip() and len(found[-1].words) < 20:
        found[-1].words.append(text.strip()[:200])


def _take_table(path: Path, found: list[_Communicator], facts: dict[str, Any]) -> None:
    """Communicators of a dump in JSON whose ranks differ, are missing, or stopped. FileError for another table."""
    table = parse_json("\n".join(LogLines(path)), str(path))
    listed = table.get("communicators")
    if not isinstance(listed, list):
        raise FileError(str(path), "a dump of NCCL's RAS without a list of communicators", "what `ncclras -f json` prints")
    hosts: set[str] = set()
    seen: set[tuple[str, int, int]] = set()
    for number, entry in enumerate(listed):
        ranks, missing = (_ranks_of(entry, name, path) for name in ("ranks", "missing_ranks"))
        hosts |= {rank[2] for rank, _ in ranks}
        seen |= {(rank[2], rank[1], int(said.get("pid") or 0)) for rank, said in ranks}
        name = f"#{number} ({str(entry.get('hash', '')).removeprefix('0x')[:16]})"
        if missing:
            lost = [rank for rank, _ in missing]
            words = [f"Missing communicator data from {len(lost)} rank{'s' if len(lost) > 1 else ''}"]
            if any(_status(said, "considered_dead") for _, said in missing):
                words.append("RAS takes their processes for dead")
            found.append(_Communicator(name, "INCOMPLETE", listed=lost, words=words))
        broken = [rank for rank, said in ranks if _status(said, "async_error") or _status(said, "abort_flag")]
        if broken:
            found.append(_Communicator(name, "ERROR", listed=broken, words=["an asynchronous error, or aborted"]))
        found += _mismatches(name, ranks)
    facts |= {"nodes": len(hosts), "gpus": len(seen)}


def _mismatches(name: str, ranks: list[tuple[tuple[int, int, str, int | None], dict[str, Any]]]) -> list[_Communicator]:
    """A communicator for each kind of call of which its ranks have launched different numbers."""
    counts: dict[str, dict[int, list[tuple[int, int, str, int | None]]]] = {}
    for rank, said in ranks:
        kinds = said.get("collective_counts")
        for kind, count in (kinds if isinstance(kinds, dict) else {}).items():
            if isinstance(count, int):
                counts.setdefault(str(kind)[:40], {}).setdefault(count, []).append((*rank[:3], count))
    differ = []
    for kind, by_count in counts.items():
        if len(by_count) > 1:
            usual = max(by_count, key=lambda count: len(by_count[count]))
            odd = [rank for count, those in by_count.items() if count != usual for rank in those]
            sizes = {count: len(those) for count, those in by_count.items()}
            differ.append(_Communicator(name, "MISMATCH", kind, sizes, odd))
    return differ


def _ranks_of(entry: object, name: str, path: Path) -> list[tuple[tuple[int, int, str, int | None], dict[str, Any]]]:
    """((rank, GPU, node, None), what the table says of it) of each rank in a communicator's list."""
    listed = entry.get(name, []) if isinstance(entry, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) and isinstance(one.get("rank"), int) for one in listed):
        raise FileError(str(path), f"a communicator of NCCL's RAS without its {name}", "what `ncclras -f json` prints")
    return [((one["rank"], int(one.get("cuda_dev") or 0), str(one.get("host", ""))[:80], None), one) for one in listed]


def _status(said: dict[str, Any], name: str) -> bool:
    status = said.get("status")
    return isinstance(status, dict) and bool(status.get(name))


def _verdict(one: _Communicator) -> list[str]:
    ranks = sorted(rank for rank, _, _, _ in one.listed)
    nodes = sorted({node for _, _, node, _ in one.listed if node})
    place = f" (on {', '.join(nodes)})" if nodes else ""
    where = f"{format_ranks(ranks)}{place}" if ranks else "ranks that it does not list"
    if not one.counts:
        return [f"communicator {one.name} is {one.status.lower()}: {where}. {' '.join(one.words)[:300]}".rstrip(". ")]
    usual = max(one.counts, key=lambda operation: one.counts[operation])
    lines = []
    for operation, count in sorted(one.counts.items()):
        if operation == usual:
            continue
        own = sorted(rank for rank, _, _, said in one.listed if said in (None, operation))
        who = f"{format_ranks(own)}{place}" if own else f"{count} ranks"
        most = f"the other {one.counts[usual]} {usual}"
        if operation > usual:
            why = f"they make a call more than the others, or the {one.counts[usual]} are late and have not come to it"
        else:
            why = "they are late: the others wait for them"
        lines.append(f"{who}: launched {one.what} {operation} of communicator {one.name}, {most}; {why}")
    return lines
