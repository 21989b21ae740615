"""Reports of ranks that are not in step (TORCH_NCCL_DESYNC_DEBUG; torch/csrc/distributed/c10d/TraceUtils.h, 1.13 to 2.13).

A report counts ranks over its group: which one timed out, which have begun the call and which have not, and a snapshot of the last
call of each. It names no group; the line before it does.
"""

from __future__ import annotations

import re

from windtunnel.base.dataclasses import dataclass, field

WORDS = (
    "Timeout at collective: ", " collective #", "never joined any collectives", " started ranks:", " finished ranks:",
    "] started ", "] finished ",
)  # fmt: skip
_TIMED_OUT = re.compile(r"\[(?P<rank>\d+)\] Timeout at collective: (?P<op>\w+), #(?P<number>\d+)")
_JOINED = re.compile(r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<number>\d+) \(count")
_MISSED = re.compile(r"\[(?P<ranks>[\d, ]+)\] finished collective #(?P<number>\d+), but didn't join collective #\d+")
_NEVER = re.compile(r"ranks? \[(?P<ranks>[\d, ]+)\] are the lagging ranks .{0,80}never joined any collectives")
_HEADING = re.compile(r"#(?P<number>\d+) (?P<what>started|finished) ranks:")
_LISTED = re.compile(r"\[(?P<ranks>[\d, ]+)\] (?P<what>started|finished) (?P<op>[A-Z_]\w*)\s*$")
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class DesyncPlace:
    """What a report says of one rank of a group: the last call that it has begun (`joined`), or ended."""

    group: str
    rank: int
    number: int
    name: str
    joined: bool


@dataclass
class DesyncReports:
    """Reports, line by line. `heading`: group and rank of the line before, where it names them."""

    heading: tuple[str, int] | None = None
    group: str = ""
    """The group of the last report; empty where the line before its first one is not its own."""
    _places: dict[tuple[str, int], DesyncPlace] = field(default_factory=dict)
    _timed_out: list[DesyncPlace] = field(default_factory=list)
    _listing: tuple[str, int] = ("", 0)
    _seen: set[tuple[str, int]] = field(default_factory=set)
    _never: set[str] = field(default_factory=set)

    def take(self, text: str) -> bool:
        """Takes a line; whether it is one of a report."""
        if (out := _TIMED_OUT.search(text)) is not None:
            name = out["op"].strip("_").lower()
            self.group = self.heading[0] if self.heading is not None and self.heading[1] == int(out["rank"]) else ""
            self._timed_out.append(DesyncPlace(self.group, int(out["rank"]), int(out["number"]), name, joined=True))
        elif (joined := _JOINED.search(text)) is not None:
            self._put(joined["ranks"], int(joined["number"]), "", joined=True)
        elif (missed := _MISSED.search(text)) is not None:
            self._put(missed["ranks"], int(missed["number"]), "", joined=False)
        elif (never := _NEVER.search(text)) is not None:
            self._put(never["ranks"], 0, "", joined=False)
            self._never.add(self.group)
        elif (heading := _HEADING.search(text)) is not None:
            self._listing = heading["what"], int(heading["number"])
        elif (listed := _LISTED.search(text)) is not None and listed["what"] == self._listing[0]:
            name = listed["op"].strip("_").lower()
            self._put(listed["ranks"], self._listing[1], name, joined=listed["what"] == "started")
        else:
            return False
        return True

    def _put(self, ranks: str, number: int, name: str, *, joined: bool) -> None:
        self._seen.add((self.group, number + (not joined)))
        for rank in [int(part) for part in re.findall(r"\d{1,9}", ranks)][:_MOST_RANKS]:
            known = self._places.get((self.group, rank))
            if known is None or known.number <= number:
                self._places[self.group, rank] = DesyncPlace(
                    self.group, rank, number, name or (known.name if known else ""), joined
                )

    def places(self) -> list[DesyncPlace]:
        """The place of each rank that a report names. The number of a call that timed out ends its line, which may be cut: it
        counts where another line of the report confirms it, or where the report has no other call."""
        timed_out = [
            place for place in self._timed_out if (place.group, place.number) in self._seen or place.group in self._never
        ]  # fmt: skip
        own = {(place.group, place.rank) for place in timed_out}
        return [*timed_out, *(place for key, place in self._places.items() if key not in own)]

    def __bool__(self) -> bool:
        return bool(self._places or self._timed_out)
