"""GOAL as text: `num_ranks N`, then `rank R { label: send 8b to 1 tag 0 cpu 0 nic 0 ... label requires label }`; read and written.

Grammar: spcl/LogGOPSim, src/LogGOPSim/txt2bin.re.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import lines_of
from windtunnel.formats.traces.goal.schedule import ANY, GoalKind, GoalRank, GoalSchedule

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
