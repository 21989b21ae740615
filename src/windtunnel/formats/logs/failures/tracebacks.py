"""Tracebacks of Python: which exception each rank ended with, where ranks write between each other's lines.

The lines of one traceback have the same text before them (`[rank3]: `, `(Worker pid=7) `, a time) but for its digits, and all
but the last begin with a space. What follows from the end of another rank blames nobody (`tracebacks.toml`).
"""

from __future__ import annotations

import re
from functools import cache

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.files import table_beside
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.formats.logs.failures.out_of_memory import rank_before

WORD = "Traceback (most recent call last)"
WORDS = (WORD, "During handling of the above exception", "direct cause of the following exception")
_RAISED = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: (.*))?$")
_LAST_FRAME = re.compile(r"\s*File \"([^\"]{1,300})\", line (\d+), in (\S{1,80})")
_MOST = 1000
_LONGEST = 160
"""Characters of an exception's message that are shown."""


@dataclass
class _Open:
    """A traceback whose exception is still to come: what stands before its lines, and the rank that they name."""

    shape: str
    rank: int | None
    frame: str = ""
    lines: int = 0


def _shape(before: str) -> str:
    return re.sub(r"\d+", "#", before)


class Tracebacks:
    """The exceptions that ended tracebacks, taken line by line; what another reader tells better is left to it."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._raised: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}
        self._last: dict[int | None, str] = {}
        self._before: dict[int | None, str] = {}
        """By rank: its last exception, and the one that its next one follows."""

    @property
    def listens(self) -> bool:
        """Whether the lines that follow belong to a traceback."""
        return bool(self._open)

    def line(self, text: str, told: bool = False) -> None:
        """Takes one line; `told`: another reader has said what it means."""
        if (at := text.find(WORD)) >= 0:
            before = text[:at].removesuffix("^C")
            self._open = [one for one in self._open if one.shape != _shape(before) or one.rank != rank_before(text)]
            self._open.append(_Open(_shape(before), rank_before(text)))
            return
        if any(words in text for words in WORDS[1:]) and (rank := rank_before(text)) in self._last:
            self._before[rank] = self._take_back(rank)
            return
        for one in self._open:
            body = _body(text, one)
            if body is None:
                continue
            one.lines += 1
            if body[:1].isspace() or not body:
                frame = _LAST_FRAME.match(body)
                one.frame = f"{frame[1].rsplit('/', 1)[-1]}, line {frame[2]}" if frame is not None else one.frame
            elif (raised := _RAISED.match(body)) is not None:
                self._open.remove(one)
                if not told:
                    self._tell(raised, one)
            elif one.lines > _MOST:
                self._open.remove(one)
            return

    def _tell(self, raised: re.Match[str], one: _Open) -> None:
        name, message = raised[1].rpartition(".")[2], (raised[2] or "").strip()
        if name in _names("elsewhere"):
            return
        said = f"{name}: {message[:_LONGEST]}" if message else name
        said += f" ({one.frame})" if one.frame and name not in _names("follows") else ""
        if name in _names("follows") or any(word in message for word in _names("words")):
            said += "; that follows from another rank's or process's end"
        if (cause := self._before.pop(one.rank, "")) and "; that follows" not in said:
            said += f", after {cause.partition(', after ')[0]}"
        if said in self._counts or len(self._counts) < _MOST:
            self._counts[said] = self._counts.get(said, 0) + 1
            self._last[one.rank] = said
            if one.rank is not None:
                self._raised.setdefault(said, set()).add(one.rank)

    def _take_back(self, rank: int | None) -> str:
        """A rank's last exception, which another one follows: no longer told by itself."""
        said = self._last.pop(rank)
        self._counts[said] -= 1
        if not self._counts[said]:
            del self._counts[said]
        if rank is not None:
            self._raised[said].discard(rank)
        return said

    @property
    def culprits(self) -> dict[str, str]:
        """Ranks that raised an exception of their own."""
        return {
            str(rank): f"raised {said}" for said, ranks in self._raised.items() if "; that follows" not in said for rank in ranks
        }

    @property
    def texts(self) -> list[str]:
        """Each exception once, with the ranks that raised it; those that follow from others last."""
        lines = []
        for said, count in sorted(self._counts.items(), key=lambda pair: "; that follows" in pair[0]):
            ranks = sorted(self._raised.get(said, ()))
            who = format_ranks(ranks) if ranks else "a process"
            lines.append(f"{who} raised {said}" + (f" ({count} times)" if count > max(1, len(ranks)) else ""))
        return lines


def _body(text: str, one: _Open) -> str | None:
    """The line without what stands before it; None for a line of another traceback."""
    if not one.shape:
        return text if rank_before(text) is None else None
    pattern = re.escape(one.shape.rstrip()).replace(r"\#", "#").replace("#", r"\d+")
    before = re.match(pattern + (" ?" if one.shape != one.shape.rstrip() else ""), text)
    return text[before.end() :] if before is not None and rank_before(text) == one.rank else None


@cache
def _names(kind: str) -> frozenset[str]:
    return frozenset(table_beside(__file__)[kind])


def recognises(text: str) -> bool:
    """Whether a traceback ends with an exception."""
    if WORD not in text:
        return False
    found = Tracebacks()
    for line in text.splitlines():
        found.line(line)
    return bool(found.texts)
