"""Other last words of a job: torchrun's table of failures, Xid lines of NVIDIA's driver, what torchfrtrace prints of dumps,
reports of stragglers (FlagScale, Megatron-LM, NVRx), lines of the kernel, of schedulers, launchers, engines and networks.

`last_words.toml` says what numbers and words mean. Who is to blame is said only where a line names a rank.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.base.units import show_size
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.formats.head import Head
from windtunnel.formats.logs import unknown
from windtunnel.formats.logs.failures import tracebacks
from windtunnel.formats.logs.failures.out_of_memory import rank_before
from windtunnel.formats.logs.failures.tracebacks import Tracebacks
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import WordLines

_TABLE = re.compile(r"(?:^|\s)(Failures|Root Cause \(first observed failure\)):\s*$")
_ENTRY = re.compile(r"\b(time|host|rank|exitcode|error_file|traceback)\s*: (.{1,300})")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<place>[0-9A-Fa-f:.]+)\): (?P<number>\d+)(?P<more>[^\n]{0,200})")
_PROCESS = re.compile(r"pid=(\d+)(?:, name=([^,\s]{1,40}))?")
_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9A-Fa-f:.]{7,16})")
_HOST = re.compile(r"(?:^|\s)(?=[\w.-]*[A-Za-z])([\w.-]{1,80}) kernel: ")
_SEQUENCE = re.compile(
    r"(?:Collective sequence number: (\d+) has errors|Not all ranks joining collective, sequence number: (\d+)|"
    r"Input/output mismatch in the collective sequence number: (\d+))"
)
_CULPRIT = re.compile(r"Culprit rank (\d{1,9}); (?:Error type: )?([A-Z_]+)(?:, ([^;\n]{1,200}?))?(?=, Culprit rank|\s*$)")
_NO_DUMP = re.compile(r"we missed FR dumps from ranks \(\{?([\d, ]+)\}?\)")
_FIELD = re.compile(
    r"\b(group info|collective|collective state|expected ranks|missing ranks|mismatch collective|error ranks): (.{1,300})"
)
_STRAGGLERS = re.compile(r"[Ss]traggler [Rr]eport at [Ss]tep (\d+)")
_SLOW = re.compile(r"Detected [Ss]tragglers: \[([\d, ]+)\]|[Ss]traggler(?:s)?(?: detected)?:? ranks? \[?([\d, ]+)\]?")
_SECTION = re.compile(r"\b([\w/ -]{1,60}):\s*$")
_TIMES = re.compile(r"Min: ([\d.]+)ms, Max: ([\d.]+)ms, Avg: ([\d.]+)ms, Slowdown: ([\d.]+)x")
_MEGATRON = re.compile(r"\b(M[nx])(Rtt|Etpt)/Rnk: ([\d.]+)(?:ms|TF)/(\d{1,9})")
_APART = 1.05
"""Ratio of the highest to the lowest throughput of a rank from which Megatron's report is of a straggler. Assumed."""
_WORDS = (
    "NVRM: Xid", "NVRM: The NVIDIA GPU", "Failures:", "Root Cause (first", "time      :", "host      :", "rank      :",
    "exitcode  :", "error_file:", "traceback :", "sequence number: ", "joining collective", "group info: ", "collective: ",
    "collective state: ", "expected ranks: ", "missing ranks: ", "mismatch collective: ", "error ranks: ", "Culprit rank",
    "missed FR dumps", "traggler", "Etpt/Rnk", *tracebacks.WORDS,
)  # fmt: skip
_KINDS = (("alone", True), ("ends", False), ("blames", False), ("weak", False))
"""What a kind of words says of its lines, and the usual."""
_MOST = 1000
_REPORT = 400
"""Lines that a report of stragglers may have."""


@dataclass(frozen=True)
class _Pattern:
    """A line of `last_words.toml`."""

    literal: str
    pattern: re.Pattern[str]
    says: str
    alone: bool
    ends: bool
    blames: bool
    """Whether the rank before the line is to blame."""
    weak: bool
    """Whether a log with such lines may be one of steps all the same."""


class _Said(str):
    """A group of a pattern; `{0:bytes}` shows it with a unit."""

    def __format__(self, spec: str) -> str:
        return show_size(int(self)) if spec == "bytes" else str(self)


def recognises(head: Head) -> bool:
    """A line of one of them."""
    text = head.text
    found = [word for word in _words() if word.alone and word.literal in text and word.pattern.search(text) is not None]
    strong = (
        any(pattern.search(text) is not None for pattern in (_XID, _SEQUENCE, _STRAGGLERS, _MEGATRON))
        or any(not word.weak for word in found)
        or ("Root Cause (first observed failure)" in text and "exitcode" in text)
    )  # fmt: skip
    return strong or ((bool(found) or tracebacks.recognises(text)) and not unknown.recognises(head))


@cache
def _words() -> tuple[_Pattern, ...]:
    return tuple(
        _Pattern(literal, re.compile(pattern, re.MULTILINE), says, *(kind.get(name, usual) for name, usual in _KINDS))
        for kind in table_beside(__file__)["words"].values()
        for literal, pattern, says in kind["lines"]
    )


def read(files: Sequence[Path], context: Context) -> Reading:
    """What the lines say of the job's end, and of which rank. FileError where no line says anything."""
    ended, traced, slow, other, raised = _Launcher(), _Traced(), _Slow(), _Other(), Tracebacks()
    broken: list[str] = []
    for path in files:
        lines = WordLines(path, tuple(dict.fromkeys((*_WORDS, *(word.literal for word in _words())))), context.progress, broken)
        for text in lines:
            for part in (ended, traced, slow):
                part.line(text)
            raised.line(text, other.line(text))
            lines.following = slow.listens or raised.listens
    texts = [*ended.texts, *traced.texts, *other.texts, *raised.texts, *slow.texts]
    culprits = {**slow.culprits, **raised.culprits, **other.culprits, **traced.culprits, **ended.culprits}
    if not texts:
        raise FileError(str(files[0]), "last words that break off", "torchrun's table of failures, Xid lines, or the like, whole")
    hang = {
        "culprits": culprits,
        "waits": {},
        "chain": [],
        "cycle": [],
        "stuck": [],
        "text": "\n".join(texts),
        "crash": bool(ended.texts) or other.ends,
    }
    facts = {"ranks_named": sorted(map(int, culprits)), "says": texts, "hang": hang}
    return Reading("last-words", Content.EVIDENCE, facts, facts, tuple(texts), (), (), tuple(broken))


class _Launcher:
    """torchrun's table: each rank that failed, and the one that failed first."""

    def __init__(self) -> None:
        self._entries: list[tuple[bool, dict[str, str]]] = []
        self._in: str | None = None

    def line(self, text: str) -> None:
        if (heading := _TABLE.search(text)) is not None:
            self._in = heading[1]
        elif self._in is not None and (entry := _ENTRY.search(text)) is not None and len(self._entries) < _MOST:
            if entry[1] == "time":
                self._entries.append((self._in != "Failures", {}))
            if self._entries:
                self._entries[-1][1][entry[1]] = entry[2].strip()

    @property
    def culprits(self) -> dict[str, str]:
        """The rank that failed first, with how."""
        return {rank: self._how(entry) for first, entry in self._entries if first and (rank := _rank_of(entry)) is not None}

    @property
    def texts(self) -> list[str]:
        """The first failure, and how many followed."""
        first = [entry for root, entry in self._entries if root]
        lines = [
            f"rank {_rank_of(entry) or '?'} on {entry.get('host', 'a node')} failed first, at {entry.get('time', '?')}: "
            f"{self._how(entry)}"
            for entry in first
        ]
        others = sorted({int(rank) for root, entry in self._entries if not root and (rank := _rank_of(entry)) is not None})
        if first and others:
            lines.append(f"{format_ranks(others)} failed after it; that follows from the first, or has the same cause")
        return lines

    @staticmethod
    def _how(entry: dict[str, str]) -> str:
        code = entry.get("exitcode", "").partition(" ")[0]
        what = str(table_beside(__file__)["exit"].get(code, f"exit code {code or 'unknown'}"))
        trace = entry.get("traceback", "")
        return what + (f"; {trace}" if trace and not trace.startswith("To enable traceback") else "")


def _rank_of(entry: dict[str, str]) -> str | None:
    number = re.match(r"\d{1,9}", entry.get("rank", ""))
    return number[0] if number else None


class _Traced:
    """What torchfrtrace prints of dumps of the flight recorder: calls that ranks are missing from."""

    def __init__(self) -> None:
        self.culprits: dict[str, str] = {}
        self.texts: list[str] = []
        self._number = ""
        self._missing: tuple[int, ...] = ()
        self._fields: dict[str, str] = {}

    def line(self, text: str) -> None:
        if (sequence := _SEQUENCE.search(text)) is not None:
            self._number, self._fields, self._missing = next(filter(None, sequence.groups())), {}, ()
            if sequence[3]:
                self.texts.append(
                    f"call {sequence[3]}: sizes of an all-to-all do not fit; which rank gave them wrong cannot be told"
                )
        elif (lost := _NO_DUMP.search(text)) is not None:
            who = format_ranks(sorted(map(int, re.findall(r"\d+", lost[1]))))
            self.texts.append(f"no dump of {who}: who is late cannot be told")
        elif wrong := _CULPRIT.findall(text):
            for rank, kind, details in wrong:
                more = f": {details}" if details else ""
                self.culprits[rank] = f"differs in call {self._number}: {kind.lower().replace('_', ' ')}{more}"
                self.texts.append(f"rank {rank} {self.culprits[rank]}")
        elif self._number and (said := _FIELD.search(text)) is not None and len(self.texts) < _MOST:
            self._fields[said[1]] = said[2].strip()
            if said[1] == "missing ranks" and (ranks := [int(part) for part in re.findall(r"\d{1,9}", said[2])]):
                name = self._fields.get("collective", "a call").removeprefix("nccl:").strip("_")
                what = f"{name} {self._number} of {self._fields.get('group info', 'its group').partition(':')[2] or 'its group'}"
                state = f", which is {self._fields['collective state']} on the others" if "collective state" in self._fields else ""
                self.culprits.update({str(rank): f"has not joined {what}{state}" for rank in ranks})
                self.texts.append(f"{format_ranks(ranks)}: not in {what}{state}")
                self._missing = () if state else tuple(ranks)
            elif said[1] == "collective state" and self._missing:  # torch prints it after the ranks
                state = f", which is {said[2].strip()} on the others"
                self.culprits.update({str(rank): self.culprits[str(rank)] + state for rank in self._missing})
                self.texts[-1] += state
                self._missing = ()
            elif said[1] == "mismatch collective":
                self.texts.append(f"call {self._number}: ranks run another call, {said[2].strip()}: they never meet")


class _Slow:
    """Reports of stragglers: ranks that they name, else the section whose ranks are furthest apart."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}
        self._step = ""
        self._left = 0
        self._section = ""
        self._throughput: dict[str, tuple[float, str]] = {}
        self._worst: tuple[float, str] | None = None

    def line(self, text: str) -> None:
        if (report := _STRAGGLERS.search(text)) is not None:
            self._step, self._left = report[1], _REPORT
            return
        self._left -= 1
        for end, what, value, rank in _MEGATRON.findall(text):
            if what == "Etpt" and value.count(".") <= 1:
                self._throughput[end] = float(value), rank
        if not self._step:
            return
        elif (slow := _SLOW.search(text)) is not None:
            for rank in re.findall(r"\d{1,9}", slow[1] or slow[2]):
                self._reported[rank] = f"is a straggler at step {self._step} by the report of its framework"
        elif (times := _TIMES.search(text)) is not None and times[4].count(".") <= 1 and times[4].strip("."):
            apart = float(times[4])
            if self._worst is None or apart > self._worst[0]:
                self._worst = apart, f"{self._section or 'a section'} takes {times[1]} to {times[2]} ms, {apart:.2f} times"
        elif (section := _SECTION.search(text)) is not None:
            self._section = section[1].strip()

    @property
    def listens(self) -> bool:
        """Whether the lines that follow belong to a report."""
        return self._left > 0

    @property
    def culprits(self) -> dict[str, str]:
        """Ranks that a report names, and the one of the lowest throughput if it is far below the highest."""
        if len(self._throughput) < 2:
            return self._reported
        (low, slow), (high, _) = self._throughput["Mn"], self._throughput["Mx"]
        by_megatron = {slow: f"is a straggler by Megatron's report: {low:g} of {high:g} TFLOP/s"} if low * _APART < high else {}
        return {**self._reported, **by_megatron}

    def _megatron(self) -> list[str]:
        """Megatron-LM's last report: the ranks of the lowest and the highest throughput."""
        if len(self._throughput) < 2:
            return []
        (low, slow), (high, fast) = self._throughput["Mn"], self._throughput["Mx"]
        return [f"Megatron's last report: {low:g} TFLOP/s at the slowest rank, {slow}, {high:g} at the fastest, {fast}"]

    @property
    def texts(self) -> list[str]:
        """Who is slow, and where ranks differ most."""
        megatron = self._megatron()
        if not self._step:
            return megatron
        named = sorted(map(int, self._reported))
        who = f"{format_ranks(named)}: stragglers" if named else "no rank is named a straggler"
        most = f"; ranks differ most in {self._worst[1]}" if self._worst else ""
        return [*megatron, f"step {self._step}: {who}{most}"]


class _Other:
    """Xid lines and words of other programs: what each means, once, with the ranks or the machine that say it."""

    def __init__(self) -> None:
        self.culprits: dict[str, str] = {}
        self.ends = False
        self._said: dict[str, int] = {}
        self._ranks: dict[str, set[int]] = {}
        self._gpu = "?"

    def line(self, text: str) -> bool:
        """Takes one line; whether it means something here."""
        known = len(self._said), sum(self._said.values())
        host = _HOST.search(text)
        on = f"{host[1]}: " if host is not None else ""
        if (gpu := _GPU.search(text)) is not None:
            self._gpu = gpu[1]
        if (xid := _XID.search(text)) is not None:
            means = table_beside(__file__)["xid"].get(xid["number"], f"see NVIDIA's list of Xid errors{xid['more'][:80]}")
            process = _PROCESS.search(xid["more"])
            of = f" (of {process[2] or 'a process'}, pid {process[1]})" if process is not None else ""
            self._count(f"{on}the GPU at PCI {xid['place']} reports Xid {xid['number']}{of}: {means}")
        for word in _words():
            if word.literal in text and (match := word.pattern.search(text)) is not None:
                said = word.says.format(*(_Said(group or "") for group in match.groups()), gpu=self._gpu).rstrip()
                self.ends = self.ends or word.ends
                self.culprits.update(dict.fromkeys(_ranks_named(match), said))
                rank = rank_before(text) if word.blames else None
                self._count(on + said, rank)
                if rank is not None:
                    self.culprits[str(rank)] = said
        return (len(self._said), sum(self._said.values())) != known

    def _count(self, text: str, rank: int | None = None) -> None:
        if text in self._said or len(self._said) < _MOST:
            self._said[text] = self._said.get(text, 0) + 1
            if rank is not None:
                self._ranks.setdefault(text, set()).add(rank)

    @property
    def texts(self) -> list[str]:
        """Each once, with the ranks that said it, or how often it was said."""
        lines = []
        for text, count in self._said.items():
            ranks = sorted(self._ranks.get(text, ()))
            who = f"{format_ranks(ranks)}: " if ranks else ""
            lines.append(f"{who}{text}" + (f" ({count} times)" if count > max(1, len(ranks)) else ""))
        return lines


def _ranks_named(match: re.Match[str]) -> list[str]:
    """Ranks that a line blames: of `rank` or `ranks`, where they may stand as `rank=3` beside names of nodes."""
    names = match.groupdict()
    listed = names.get("rank") or names.get("ranks") or ""
    return re.findall(r"rank=(\d{1,9})", listed) or ([] if "=" in listed else re.findall(r"\b\d{1,9}\b", listed))[:_MOST]
