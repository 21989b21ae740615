"""A GOAL schedule: operations of each rank in columns, with what each requires to have ended or started.

GOAL in LogGOPSim's binary form (Parser.hpp): a magic number, counts, where ranks lie, then their operations and lists.

GOAL as text: `num_ranks N`, then `rank R { label: send 8b to 1 tag 0 cpu 0 nic 0 ... label requires label }`; read and written.

Grammar: spcl/LogGOPSim, src/LogGOPSim/txt2bin.re.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import lines_of, read_bytes
from windtunnel.formats.traces.task_columns import TaskColumns
from windtunnel.records.trace_graph import TaskKind, TraceGraph

ANY = 2**32 - 1
"""A receive's source or tag that matches all (-1 in text)."""


class GoalKind(IntEnum):
    """Operations, by LogGOPSim's numbers."""

    SEND = 1
    RECEIVE = 2
    CALC = 3


@dataclass
class GoalRank:
    """Operations of a rank in the order of the file. `size`: bytes, or ns of a calculation. `requires`, `irequires`: pairs of
    operations, the first of which waits until the second has ended or started, in the order of the file."""

    kind: array[int] = field(default_factory=lambda: array("B"))
    size: array[int] = field(default_factory=lambda: array("Q"))
    peer: array[int] = field(default_factory=lambda: array("L"))
    tag: array[int] = field(default_factory=lambda: array("L"))
    cpu: array[int] = field(default_factory=lambda: array("B"))
    nic: array[int] = field(default_factory=lambda: array("B"))
    requires: list[tuple[int, int]] = field(default_factory=list)
    irequires: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kind)

    def add(self, kind: GoalKind, size: int, peer: int = 0, tag: int = 0, cpu: int = 0, nic: int = 0) -> int:
        """An operation; its number."""
        self.kind.append(kind)
        self.size.append(size)
        self.peer.append(peer)
        self.tag.append(tag)
        self.cpu.append(cpu)
        self.nic.append(nic)
        return len(self) - 1


@dataclass
class GoalSchedule:
    """All ranks."""

    ranks: list[GoalRank]
    broken: list[str] = field(default_factory=list)

    @property
    def operations(self) -> int:
        return sum(len(rank) for rank in self.ranks)


def facts_of(schedule: GoalSchedule) -> dict[str, Any]:
    """Counts and sums that can be checked against the file."""
    out: dict[str, Any] = {"ranks": len(schedule.ranks)}
    for kind, name in ((GoalKind.SEND, "send"), (GoalKind.RECEIVE, "recv"), (GoalKind.CALC, "calc")):
        sizes = [size for rank in schedule.ranks for one, size in zip(rank.kind, rank.size, strict=True) if one == kind]
        out[name] = len(sizes)
        out["calc_ns" if kind is GoalKind.CALC else f"{name}_bytes"] = sum(sizes)
    out["requires"] = sum(len(rank.requires) for rank in schedule.ranks)
    out["irequires"] = sum(len(rank.irequires) for rank in schedule.ranks)
    out["cpus"] = 1 + max((max(rank.cpu, default=0) for rank in schedule.ranks), default=0)
    out["nics"] = 1 + max((max(rank.nic, default=0) for rank in schedule.ranks), default=0)
    return out


def graph_of(schedule: GoalSchedule) -> tuple[TraceGraph, tuple[str, ...]]:
    """The tasks, and what was assumed: a trace graph knows neither waits for the start of a task nor receives from anybody."""
    out = TaskColumns()
    kinds = {GoalKind.SEND: TaskKind.SEND, GoalKind.RECEIVE: TaskKind.RECEIVE, GoalKind.CALC: TaskKind.COMPUTE}
    starts = wild = 0
    for number, rank in enumerate(schedule.ranks):
        out.rank(number)
        base = len(out)
        deps: list[list[int]] = [[] for _ in range(len(rank))]
        for later, earlier in rank.requires:
            deps[later].append(earlier)
        for later, earlier in rank.irequires:
            deps[later] += deps[earlier]
            starts += 1
        for at in range(len(rank)):
            kind, size = GoalKind(rank.kind[at]), rank.size[at]
            after = [base + one for one in deps[at]]
            if kind is GoalKind.CALC:
                out.add("calc", TaskKind.COMPUTE, size * 1e-9, deps=after)
                continue
            wild += rank.peer[at] == ANY or rank.tag[at] == ANY
            peer = -1 if rank.peer[at] == ANY else rank.peer[at]
            out.add(kind.name.lower(), kinds[kind], size=float(size), peer=peer, tag=rank.tag[at], deps=after)
    notes = ["computations of a rank share its GPU, whatever their cpu; messages wait for their receiver"]
    if starts:
        notes.append(f"{starts} irequires wait for what the other operation waits for")
    if wild:
        notes.append(f"{wild} receives from anybody or with any tag meet no sender (`--loggops` matches them)")
    return out.graph(), tuple(notes)


MAGIC, USED = 4223, 2342
LARGEST = 2**31
_HEAD = 14  # magic, ranks, most cpu, most nic
_NODE = np.dtype([
    ("waits", "<u4"), ("kind", "u1"), ("peer", "<u4"), ("size", "<u8"), ("tag", "<u4"), ("cpu", "u1"), ("nic", "u1"),
    ("ends", "<u4"), ("end_at", "<u4"), ("starts", "<u4"), ("start_at", "<u4"),
])  # fmt: skip


def is_binary(data: bytes) -> bool:
    """Whether bytes begin with the magic number, or with that of a schedule that a run has used up."""
    return len(data) >= _HEAD and int.from_bytes(data[:8], "little") in (MAGIC, USED) and data[8:12] != b"\0\0\0\0"


def read_binary(path: Path) -> GoalSchedule:
    """The schedule. FileError for one that LogGOPSim has marked as used, and for lists that point outside of the file."""
    data, size = read_bytes(path, LARGEST, "a binary GOAL schedule")
    if size > LARGEST:
        raise FileError(str(path), f"{size} bytes", f"a binary GOAL schedule of at most {LARGEST} bytes")
    if int.from_bytes(data[:8], "little") == USED:
        raise FileError(str(path), "a schedule that a run with --save-mem has used up", "one as txt2bin writes it")
    count = int.from_bytes(data[8:12], "little")
    if len(data) < _HEAD + 16 * count:
        raise FileError(str(path), f"{len(data)} bytes for {count} ranks", "a binary GOAL schedule")
    where = np.frombuffer(data, "<u8", 2 * count, _HEAD).reshape(-1, 2)
    ranks: list[GoalRank] = []
    broken: list[str] = []
    for number, (start, end) in enumerate(where.tolist()):
        try:
            ranks.append(_rank(data[8 + start : 8 + end], count))
        except (ValueError, IndexError, SpecError):
            broken.append(f"{path}: rank {number} cannot be read; it counts as empty")
            ranks.append(GoalRank())
    if len(broken) == len(ranks):
        raise FileError(str(path), "ranks that cannot be read", "a binary GOAL schedule")
    return GoalSchedule(ranks, broken)


def _rank(data: bytes, ranks: int) -> GoalRank:
    nodes, roots = (int(one) for one in np.frombuffer(data, "<u4", 2))
    table = np.frombuffer(data, _NODE, nodes, 8 + 4 * roots)
    lists = np.frombuffer(data, "<u4", -1, 8 + 4 * roots + nodes * _NODE.itemsize).tolist()
    out = GoalRank()
    for row in table:
        if not 1 <= row["kind"] <= 3 or (row["kind"] != GoalKind.CALC and row["peer"] >= ranks and row["peer"] != ANY):
            raise SpecError("kind", int(row["kind"]), "1 to 3, and a peer that is a rank")
        out.add(GoalKind(int(row["kind"])), *(int(row[name]) for name in ("size", "peer", "tag", "cpu", "nic")))
    for earlier, row in enumerate(table):
        for pairs, first, many in ((out.requires, row["end_at"], row["ends"]), (out.irequires, row["start_at"], row["starts"])):
            for later in lists[int(first) : int(first) + int(many)]:
                if later >= nodes:
                    raise SpecError("list", later, f"below {nodes}")
                pairs.append((later, earlier))
    return out


_OPERATION = re.compile(
    r"(?:(?P<label>[A-Za-z]\w*)\s*:\s*)?(?:"
    r"calc\s+(?P<calc>\d+)(?:\s+cpu\s+(?P<ccpu>\d+))?"
    r"|(?:(?P<send>send)\s+(?P<out>\d+)\s*b\s+to|recv\s+(?P<in>\d+)\s*b\s+from)\s+(?P<peer>-1|\d+)"
    r"(?:\s+tag\s+(?P<tag>-1|\d+))?(?:\s+cpu\s+(?P<cpu>\d+))?(?:\s+nic\s+(?P<nic>\d+))?)\s*$"
)
_WAIT = re.compile(r"([A-Za-z]\w*)\s+(i?requires)\s+([A-Za-z]\w*)\s*$")
_RANK = re.compile(r"rank\s+(\d{1,9})\s*\{$")
_START = re.compile(r"(?:\s|//[^\n]*+\n|/\*(?:(?!\*/).)*+\*/)*+num_ranks\s+\d", re.DOTALL)
MOST_RANKS = 2**18
MOST_OPERATIONS = 50_000_000


def is_text(text: str) -> bool:
    """Whether text begins as a schedule does."""
    return _START.match(text) is not None


def read_text_schedule(path: Path) -> GoalSchedule:
    """The schedule of a file, plain or gzip. FileError for another file, SpecError with its line for what is none; a file that
    ends early gives what stands before."""
    broken: list[str] = []
    reader = _Reader(str(path))
    last: SpecError | None = None
    for number, line in _statements(lines_of(path, "a GOAL schedule", broken)):
        if last is not None:
            raise last
        try:
            reader.take(number, line)
        except SpecError as error:  # the last statement of a file that ends early is cut off
            last = error
    if last is not None:
        if not reader.operations:
            raise last
        broken.append(f"{path}: the last statement is cut off")
    if reader.ranks is None:
        raise FileError(str(path), "a file without num_ranks", "a GOAL schedule")
    if reader.open is not None:
        broken.append(f"{path}: rank {reader.number} has no closing brace: the file ends early")
    if reader.missing:
        broken.append(f"{path}: {reader.missing} dependencies name a label that their rank does not have")
    missing = sum(number not in reader.seen for number in range(len(reader.ranks)))
    if missing:
        broken.append(f"{path}: {missing} of {len(reader.ranks)} ranks have no block")
    return GoalSchedule(reader.ranks, broken)


class _Reader:
    """Statements into ranks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ranks: list[GoalRank] | None = None
        self.open: GoalRank | None = None
        self.number, self.count, self.missing = -1, 0, 0
        self.labels: dict[str, int] = {}
        self.waits: list[tuple[str, bool, str]] = []
        self.seen: set[int] = set()

    @property
    def operations(self) -> int:
        """Operations so far."""
        return sum(len(rank) for rank in self.ranks or ())

    def take(self, number: int, line: str) -> None:
        """One statement."""
        if self.ranks is None:
            words = line.split()
            if len(words) != 2 or words[0] != "num_ranks" or not words[1].isdigit() or not 0 < int(words[1][:9]) <= MOST_RANKS:
                raise SpecError(f"{self.name}, line {number}", line[:60], f"num_ranks, then 1 to {MOST_RANKS}")
            self.ranks = [GoalRank() for _ in range(int(words[1]))]
        elif line == "}" and self.open is not None:
            self._close(self.open)
        elif self.open is None:
            self._begin(number, line)
        else:
            self._read_task_line(number, line, self.open)

    def _begin(self, number: int, line: str) -> None:
        match = _RANK.match(line)
        if match is None or self.ranks is None or int(match[1]) >= len(self.ranks):
            raise SpecError(f"{self.name}, line {number}", line[:60], "rank N {, with N below num_ranks")
        self.number = int(match[1])
        self.open = self.ranks[self.number]
        self.seen.add(self.number)
        self.labels, self.waits = {}, []

    def _read_task_line(self, number: int, line: str, rank: GoalRank) -> None:
        wait = _WAIT.match(line)
        if wait is not None:
            self.waits.append((wait[1], wait[2] == "irequires", wait[3]))
            return
        match = _OPERATION.match(line)
        if match is None or self.ranks is None:
            raise SpecError(f"{self.name}, line {number}", line[:60], "send, recv, calc, requires, irequires or }")
        self.count += 1
        if self.count > MOST_OPERATIONS:
            raise SpecError(f"{self.name}, line {number}", self.count, f"at most {MOST_OPERATIONS:,} operations")
        size = int((match["calc"] or match["out"] or match["in"])[:20])
        peer, tag = _wild(match["peer"]), _wild(match["tag"])
        cpu, nic = (int((match[one] or "0")[:4]) for one in ("ccpu" if match["calc"] else "cpu", "nic"))
        if size >= 2**64 or tag > ANY or cpu > 255 or nic > 255 or (peer >= len(self.ranks) and (peer != ANY or match["send"])):
            allowed = "numbers that fit: sizes below 2^64, tags below 2^32, cpu and nic below 256, ranks below num_ranks"
            raise SpecError(f"{self.name}, line {number}", line[:60], allowed)
        kind = GoalKind.CALC if match["calc"] else GoalKind.SEND if match["send"] else GoalKind.RECEIVE
        made = rank.add(kind, size, peer, tag, cpu, nic)
        if match["label"]:
            self.labels.setdefault(match["label"], made)

    def _close(self, rank: GoalRank) -> None:
        for later, start, earlier in self.waits:
            if later not in self.labels or earlier not in self.labels:
                self.missing += 1
                continue
            (rank.irequires if start else rank.requires).append((self.labels[later], self.labels[earlier]))
        self.open = None


def _wild(text: str | None) -> int:
    return 0 if text is None else ANY if text == "-1" else int(text[:12])


def _statements(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(line number, statement) without comments; `{` and `}` may share a line with others."""
    comment = False
    for number, line in enumerate(lines, 1):
        text = line
        if comment or "/*" in text or "//" in text:
            text, comment = _strip_comments(text, comment)
        text = text.strip()
        if not text:
            continue
        if text.endswith("{") or text == "}" or ("{" not in text and "}" not in text):
            yield number, text
            continue
        for part in re.findall(r"[^{}]*\{|[^{}]+|\}", text):
            if part.strip():
                yield number, part.strip()


def _strip_comments(text: str, comment: bool) -> tuple[str, bool]:
    out = ""
    while text:
        if comment:
            at = text.find("*/")
            if at < 0:
                return out, True
            text, comment = text[at + 2 :], False
            continue
        block, line = text.find("/*"), text.find("//")
        if line >= 0 and (block < 0 or line < block):
            return out + text[:line], False
        if block < 0:
            return out + text, False
        out, text, comment = out + text[:block], text[block + 2 :], True
    return out, comment


def schedule_lines(schedule: GoalSchedule) -> Iterator[str]:
    """The file's lines: what `read_text_schedule` reads back the same, but for names of labels."""
    yield f"num_ranks {len(schedule.ranks)}"
    for number, rank in enumerate(schedule.ranks):
        yield ""
        yield f"rank {number} {{"
        for at in range(len(rank)):
            yield f"l{at + 1}: {_task_text(rank, at)}"
        for word, pairs in (("requires", rank.requires), ("irequires", rank.irequires)):
            for later, earlier in pairs:
                yield f"l{later + 1} {word} l{earlier + 1}"
        yield "}"


def _task_text(rank: GoalRank, at: int) -> str:
    cpu = f" cpu {rank.cpu[at]}" if rank.cpu[at] else ""
    if rank.kind[at] == GoalKind.CALC:
        return f"calc {rank.size[at]}{cpu}"
    peer, tag = ("-1" if one == ANY else one for one in (rank.peer[at], rank.tag[at]))
    nic = f" nic {rank.nic[at]}" if rank.nic[at] else ""
    words = f"send {rank.size[at]}b to" if rank.kind[at] == GoalKind.SEND else f"recv {rank.size[at]}b from"
    return f"{words} {peer} tag {tag}{cpu}{nic}"
