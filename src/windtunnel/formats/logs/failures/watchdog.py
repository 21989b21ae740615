"""Lines of PyTorch's NCCL watchdog: which call each rank waits in, and who is late.

Forms of torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and TraceUtils.h from 1.10 to 2.13:

* a call that timed out: `WorkNCCL(SeqNum=…, OpType=…, Timeout(ms)=…` (1.10 to 2.0), with `TensorShape=[…]` between (1.13, 2.0) or
  `NumelIn=…, NumelOut=…` (from 2.1);
* the status of a group: `Timeout at NCCL work: …, last enqueued NCCL work: …` (2.2, 2.3), `Exception (either an error or timeout)
  detected by watchdog at work: …` (2.4, 2.5), `failure detected by watchdog at work sequence id: … PG status: …` (from 2.6), with
  `last started work` between in some builds; and what a rank says when another one calls it to dump: `Received a global timeout
  from another rank …` (2.2, 2.3), `Received a dump signal due to a collective timeout from …` (from 2.4): a late rank's own words;
* the group: none (to 2.1), `[PG 1 Rank 3]` (2.2, 2.3: its number counts over the process), `[PG 1 (name) Rank 3]` (2.4),
  `[PG ID 1 PG GUID 7(name) Rank 3]` (from 2.5: the GUID counts over the job);
* the report of a desynchronisation (TORCH_NCCL_DESYNC_DEBUG), which counts ranks over the group, with a snapshot of their calls.

The rank in front of a line (`[rank3]:`, from 2.2) counts over the job, the one inside (`Rank 3`) over its group.

A watchdog speaks because a call did not end. So its lines never say that no rank waits, whatever they show.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.fleet.findings.hang import HangReport, PendingCall, RankState, hang_report
from windtunnel.formats.head import Head
from windtunnel.formats.logs.failures.desync import WORDS as DESYNC_WORDS
from windtunnel.formats.logs.failures.desync import DesyncPlace, DesyncReports
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import WordLines
from windtunnel.records.kernel_classes import comm_of

WORDS = ("WorkNCCL(", "last enqueued", "Last enqueued", "watchdog got stuck", "] [PG ", "] [Rank ", *DESYNC_WORDS)
_WORK = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<op>\w+), "
    r"(?:TensorShape=\[(?P<shape>[\d, ]*)\], |NumelIn=(?P<sent>\d+), NumelOut=(?P<got>\d+), )?Timeout\(ms\)=(?P<limit>\d+)\)"
    r"(?: ran for (?P<ran>\d+) milliseconds)?"
)
_STATUS = re.compile(
    r"(?:\bat (?:\w+ )?work(?: sequence id)?: (?P<number>\d+).{0,20}?)?[Ll]ast enqueued (?:\w+ )?work: (?P<enqueued>-?\d+),? "
    r"(?:last started (?:\w+ )?work: -?\d+(?: \(\w+\))?,? )?last completed (?:\w+ )?work: (?P<completed>-?\d+)(?P<end>[.,]|\s*$)"
)
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d+) seconds")
_RANK = re.compile(r"\[(?:PG (?:ID )?(?P<group>\d+)(?: PG GUID (?P<guid>\w+))?(?: ?\((?P<name>[^()\]]+)\))? )?Rank (?P<rank>\d+)\]")
_GLOBAL = re.compile(r"\[rank(?P<rank>\d+)\]")
_UNKNOWN = "the default group"
_OF_JOB = (_UNKNOWN, "default_pg", "group 0")
"""Names of the group that holds the whole job."""
_POINT_TO_POINT = ("send", "recv", "coalesced")
"""Calls of some ranks of a group, which the lines do not name."""
_GATHERS = ("allgather", "allgather_base", "reduce_scatter", "reduce_scatter_base")
"""Calls whose sizes differ by the number of their group's ranks."""
_NO_SIZE = ("", -1, -1)
_MOST_RANKS = 1 << 20
_MOST_LINES = 100_000


@dataclass
class _Rank:
    """What the lines of a rank say: its calls that timed out, by group and number, and the last calls of each group."""

    calls: dict[tuple[str, int], PendingCall] = field(default_factory=dict)
    sizes: dict[tuple[str, int], tuple[str, int, int]] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)
    waited: float = 0.0
    stuck: float = 0.0

    def groups(self) -> set[str]:
        """The groups that its lines speak of."""
        return {*self.enqueued, *(group for group, _ in self.calls)}

    def speaks_of(self, group: str) -> bool:
        """Whether a line says which call of the group it has come to."""
        return group in self.groups()


def recognises(head: Head) -> bool:
    """A call of the watchdog that timed out, the status of a group, or a report of ranks that are not in step. Lines that break off
    before they name a rank leave the log to the readers of other last words."""
    said = WatchdogLines()
    for line in head.lines:
        if any(word in line for word in WORDS):
            said.take(line)
    said.settle()
    return bool(said.ranks)


def read(files: Sequence[Path], context: Context) -> Reading:
    """Who is late, in which call. FileError where no line is the watchdog's."""
    said = WatchdogLines()
    broken: list[str] = []
    for path in files:
        for text in WordLines(path, WORDS, context.progress, broken):
            said.take(text)
    said.settle()
    if not said.ranks:
        raise FileError(
            str(files[0]), "no line of PyTorch's watchdog", "lines such as `Watchdog caught collective operation timeout`"
        )
    facts = facts_of(said)
    built = (f"the calls that {len(said.ranks)} ranks wait in",)
    return Reading("nccl-watchdog", Content.EVIDENCE, facts, facts, built, (), _assumptions(said.ranks), tuple(broken))


class WatchdogLines:
    """What the lines of the watchdog say, taken one by one; `settle` when all are taken."""

    def __init__(self) -> None:
        self.ranks: dict[int, _Rank] = defaultdict(_Rank)
        self.unplaced: list[DesyncPlace] = []
        """What reports say of ranks of a group whose number in the job no line gives."""
        self._places: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Ranks of the job by group and rank of the group."""
        self._keys: dict[str, str] = {}
        self._desync = DesyncReports()
        self._prefixed = False
        self._bare: list[str] = []

    def take(self, text: str) -> None:
        """Takes one line into what is known of its rank; a line of another kind changes nothing."""
        work, status, stuck = _last(_WORK, text), _last(_STATUS, text), _last(_STUCK, text)
        end = max((match.start() for match in (work, status, stuck) if match is not None), default=len(text))
        inside, outside = _last(_RANK, text, end), _last(_GLOBAL, text, end)
        group = self._group_of(inside)
        differs = outside is not None and inside is not None and inside["rank"] != outside["rank"]
        if _is_torn(text, inside, outside, end) or (differs and group in _OF_JOB[1:]):
            return
        self._prefixed = self._prefixed or outside is not None
        if self._desync.take(text):
            return
        self._desync.heading = (group, int(inside["rank"])) if inside is not None else None
        if outside is not None:
            self._take_of(int(outside["rank"]), group, work, status, stuck)
            if inside is not None and inside["group"] is not None:
                self._places[group][int(inside["rank"])].add(int(outside["rank"]))
        elif inside is not None and len(self._bare) < _MOST_LINES:
            self._bare.append(text)

    def _take_of(
        self, number: int, group: str, work: re.Match[str] | None, status: re.Match[str] | None, stuck: re.Match[str] | None
    ) -> None:
        rank = self.ranks[number]
        if work is not None:
            _take_call(rank, group, work)
        if status is not None and _is_whole(status):
            if status["number"]:
                _name_group(rank, group, int(status["number"]))
                if _completed_call(status) < int(status["number"]) <= int(status["enqueued"]):
                    rank.calls.setdefault((group, int(status["number"])), PendingCall(group, int(status["number"])))
            rank.completed[group] = max(_completed_call(status), rank.completed.get(group, -1))
            rank.enqueued[group] = max(int(status["enqueued"]), rank.enqueued.get(group, -1))
        if stuck is not None:
            rank.stuck = float(stuck["seconds"])

    def _group_of(self, inside: re.Match[str] | None) -> str:
        """The group's name, and what tells groups of one name apart."""
        if inside is None or inside["group"] is None:
            return _UNKNOWN
        key = inside["guid"] or inside["group"]
        name = inside["name"] or f"group {key}"
        return name if self._keys.setdefault(name, key) == key else f"{name} ({key})"

    def settle(self) -> None:
        """Finds what could not be said line by line: whose the lines without the job's rank are, which group a call is of, and
        which ranks a report speaks of."""
        for text in self._bare:
            match = _last(_RANK, text)
            group = self._group_of(match)
            if match is not None and (not self._prefixed or group in _OF_JOB[1:]):
                self._take_of(int(match["rank"]), group, _last(_WORK, text), _last(_STATUS, text), _last(_STUCK, text))
        for group in [name for name, places in self._places.items() if any(len(ranks) > 1 for ranks in places.values())]:
            self._part(group)
        groups = {group for rank in self.ranks.values() for group in rank.groups()} - {_UNKNOWN}
        for rank in self.ranks.values() if groups else ():
            for known in (rank.enqueued, rank.completed):  # the others name their groups: the name of this one is lost
                known.pop(_UNKNOWN, None)
        for place in self._desync.places():
            group = place.group or self._group_with(place.number + (not place.joined), groups)
            number = place.rank if group in _OF_JOB or not self._prefixed else self.rank_of(group, place.rank)
            if number is None:
                self.unplaced.append(place)
            else:
                (_join if place.joined else _miss)(self.ranks[number], group, place)
        _find_groups(self.ranks)

    def _group_with(self, number: int, groups: set[str]) -> str:
        """The group of a report whose heading is lost: the only one in which a rank is in the report's call, or before it."""
        last = [call for rank in self.ranks.values() for call in (*rank.calls, *rank.enqueued.items())]
        near = {group for group, own in last if number - own in (0, 1)}
        near.discard(_UNKNOWN)
        return near.pop() if len(near) == 1 else "an unnamed group" if groups else _UNKNOWN

    def _part(self, group: str) -> None:
        """Parts a group that lines of several groups name alike: each rank is in one of its own, of which no partner is known."""
        for number, rank in self.ranks.items():
            own = f"{group} of rank {number}"
            for known in (rank.enqueued, rank.completed):
                if group in known:
                    known[own] = known.pop(group)
            for key in [key for key in rank.calls if key[0] == group]:
                call = rank.calls.pop(key)
                rank.calls[own, key[1]] = PendingCall(own, call.number, call.comm, call.name)
                if key in rank.sizes:
                    rank.sizes[own, key[1]] = rank.sizes.pop(key)
        del self._places[group]

    def rank_of(self, group: str, place: int) -> int | None:
        """The job's rank at a place of a group: as its lines say, or as those of others let one count. None if unknown."""
        known = {own: next(iter(ranks)) for own, ranks in self._places.get(group, {}).items()}
        if place in known:
            return known[place]
        if len(known) < 2:
            return None
        first, last = min(known), max(known)
        stride, rest = divmod(known[last] - known[first], last - first)
        regular = not rest and stride > 0 and all(rank == known[first] + stride * (own - first) for own, rank in known.items())
        number = known[first] + stride * (place - first)
        return number if regular and number >= 0 else None

    def members(self, group: str) -> tuple[int, ...]:
        """Ranks of a group as far as its lines let one count: those that speak of it, and those between."""
        speakers = {number for number, rank in self.ranks.items() if rank.speaks_of(group)}
        size = self.size(group)
        if group in _OF_JOB and not (group == _UNKNOWN and self._names_groups()):
            everyone = range(max(size, max(self.ranks) + 1))
            return tuple(everyone) if len(everyone) <= 2 * len(self.ranks) or size else tuple(sorted(speakers))
        places = range(max(size, max(self._places.get(group, {-1: set()})) + 1))
        counted = {number for place in places if (number := self.rank_of(group, place)) is not None}
        return tuple(sorted(speakers | counted))

    def _names_groups(self) -> bool:
        return any(group != _UNKNOWN for rank in self.ranks.values() for group in rank.groups())

    def size(self, group: str) -> int:
        """Ranks of a group by the sizes of its gathers; 0 where none says."""
        ratios: set[int] = set()
        for rank in self.ranks.values():
            for (own, _), (name, sent, got) in rank.sizes.items():
                small, large = sorted((sent, got))
                if own == group and name in _GATHERS and small > 0:
                    ratios.add(large // small if large % small == 0 else 0)
        return ratios.pop() if len(ratios) == 1 and max(ratios) <= _MOST_RANKS else 0


def _last(pattern: re.Pattern[str], text: str, end: int | None = None) -> re.Match[str] | None:
    """The last match before `end`: where processes write over each other, a line may hold the beginning of another's."""
    found = None
    for match in pattern.finditer(text, 0, len(text) if end is None else end):
        found = match
    return found


def _is_torn(text: str, inside: re.Match[str] | None, outside: re.Match[str] | None, end: int) -> bool:
    """Whether what a line says is another's than its head: the head of a line, then the rest of another that lost its own."""
    head = inside if inside is not None else outside
    between = text[head.end() : end] if head is not None else ""
    return any(word in between for word in ("WorkNCCL(", "work: ")) or (inside is not None and ".cpp:" in between)


def _is_whole(status: re.Match[str]) -> bool:
    """Whether no number of a status may be cut: only the form from 2.6 ends with its last number."""
    return status["end"] in (".", ",") or "PG status" in status.string


def _completed_call(status: re.Match[str]) -> int:
    """The last call that ended. Where it ends the line, a part of the number before the one that timed out is that number, cut."""
    before = str(int(status["number"]) - 1) if status["number"] else ""
    said = str(status["completed"])
    return int(before) if status["end"] not in (".", ",") and before.startswith(said) else int(said)


def _take_call(rank: _Rank, group: str, work: re.Match[str]) -> None:
    number = int(work["number"]) if work["number"] else -1
    name = work["op"].strip("_").lower()
    if group == _UNKNOWN:
        group = next((own for (own, known), call in rank.calls.items() if known == number and call.name in (name, "")), group)
    rank.calls[group, number] = PendingCall(group, number, comm_of(name.removesuffix("_base")), name)
    rank.sizes[group, number] = (name, int(work["sent"] or 0), int(work["got"] or 0))
    rank.waited = max(rank.waited, int(work["ran"] or work["limit"]) / 1e3)


def _join(rank: _Rank, group: str, place: DesyncPlace) -> None:
    """A rank has begun a call and not finished it, as others report; what it says itself counts more."""
    if not any(known == place.number and (place.name or call.name) for (_, known), call in rank.calls.items()):
        comm = comm_of(place.name.removesuffix("_base")) if place.name else Comm.NONE
        rank.calls[group, place.number] = PendingCall(group, place.number, comm, place.name)


def _miss(rank: _Rank, group: str, place: DesyncPlace) -> None:
    """A rank has finished a call and not begun the next, as others report."""
    rank.completed.setdefault(group, place.number)
    rank.enqueued.setdefault(group, place.number)


def _name_group(rank: _Rank, group: str, number: int) -> None:
    """A call that timed out in a line without its group belongs to the group whose status names its number."""
    if group != _UNKNOWN and (_UNKNOWN, number) in rank.calls:
        call = rank.calls.pop((_UNKNOWN, number))
        rank.calls[group, number] = PendingCall(group, number, call.comm, call.name)
        if (_UNKNOWN, number) in rank.sizes:
            rank.sizes[group, number] = rank.sizes.pop((_UNKNOWN, number))


def _find_groups(ranks: dict[int, _Rank]) -> None:
    """A call without a group is that of the one group in which other ranks wait in a call of its number and kind; failing that, of
    the only group in which others wait in a call of its kind and size, whatever its number: a late rank is calls behind."""
    named: dict[tuple[int, str], set[str]] = defaultdict(set)
    alike: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for rank in ranks.values():
        for (group, number), call in rank.calls.items():
            if group != _UNKNOWN:
                named[number, call.name].add(group)
                named[number, ""].add(group)
                alike[rank.sizes.get((group, number), _NO_SIZE)].add(group)
    for rank in ranks.values():
        for (group, number), call in list(rank.calls.items()):
            groups = (
                named.get((number, call.name))
                or named.get((number, ""))
                or alike.get(rank.sizes.get((group, number), _NO_SIZE), set())
            )
            if group == _UNKNOWN and len(groups) == 1:
                _name_group(rank, next(iter(groups)), number)
    _fill_calls(ranks)


def _fill_calls(ranks: dict[int, _Rank]) -> None:
    """Calls of ranks of which only the status of the group is known: the first that is enqueued and not completed. What a report
    says of ranks without naming their group is of the only group that any line names."""
    groups = {group for rank in ranks.values() for group in (*(key[0] for key in rank.calls), *rank.enqueued)} - {_UNKNOWN}
    names = {(group, number): call for rank in ranks.values() for (group, number), call in rank.calls.items() if call.name}
    for rank in ranks.values():
        if len(groups) == 1 and _UNKNOWN in rank.enqueued:
            (group,) = groups
            for known in (rank.enqueued, rank.completed):
                known.setdefault(group, known.pop(_UNKNOWN))
        for group, enqueued in rank.enqueued.items():
            number = rank.completed[group] + 1
            if enqueued >= number > 0 and not any(own == group for own, _ in rank.calls):
                rank.calls[group, number] = PendingCall(group, number, Comm.NONE, "")
        for key, call in rank.calls.items():
            like = names.get(key)
            name = like.name if like is not None else call.name
            rank.calls[key] = PendingCall(call.group, call.number, like.comm if like else call.comm, call.name or name or "call")


def facts_of(said: WatchdogLines) -> dict[str, Any]:
    """Calls by group and number with the ranks in them, and the hang."""
    ranks = said.ranks
    report, quiet = _report(said)
    calls = []
    for group, number in sorted({key for rank in ranks.values() for key in rank.calls}):
        inside = sorted(rank for rank, own in ranks.items() if (group, number) in own.calls)
        sized = next((ranks[rank].sizes[group, number] for rank in inside if (group, number) in ranks[rank].sizes), None)
        sizes = {} if sized is None else {"sent": sized[1], "received": sized[2]}
        name = ranks[inside[0]].calls[group, number].name if sized is None else sized[0]
        calls.append({"group": group, "number": number, "op": name, **sizes, "ranks": format_ranks(inside)})
    waited = max(max(rank.waited, rank.stuck) for rank in ranks.values())
    hang = report.as_dict()
    hang["culprits"] = {rank: _reason(why, ranks.get(int(rank))) for rank, why in hang["culprits"].items()}
    return {"ranks": len(ranks), "waited_s": waited, "calls": calls, "hang": hang | {"text": _text(said, report, waited, quiet)}}


def _reason(why: str, rank: _Rank | None) -> str:
    """A reason in the watchdog's words: no line here knows of heartbeats or records, and a log may be pasted in part."""
    if rank is None:
        return why.replace("it wrote no record", "no line here is its own, so it is late or gone, or its lines are left out")
    if not rank.stuck:
        return why
    stuck = f"its watchdog got stuck for {rank.stuck:.0f} s: a call of CUDA or NCCL, or Python's lock, blocks its process"
    return why.replace(f"its process has sent no heartbeat for {rank.stuck:.1f} s", stuck)


def _report(said: WatchdogLines) -> tuple[HangReport, tuple[int, ...]]:
    """The hang, and members of the groups that wait whose lines do not say what they do there.

    Those count as late where no rank is that says more of itself.
    """
    states, groups = {}, set()
    for number, rank in said.ranks.items():
        pending = tuple(sorted((call for call in rank.calls.values() if not _is_pair(call)), key=lambda call: call.number))
        begun = {call.group: call.number for call in reversed(pending)}
        groups |= rank.groups()
        for group, enqueued in rank.enqueued.items():
            begun[group] = max(enqueued, begun.get(group, enqueued))
        finished = {call.group: call.number - 1 for call in reversed(pending) if call.number >= 0} | rank.completed
        states[number] = RankState(number, pending, begun, finished, silent=rank.stuck)
    known = {group: tuple(n for n in said.members(group) if n in said.ranks and said.ranks[n].speaks_of(group)) for group in groups}
    report = hang_report(states, known)
    waiting = {call.group for state in states.values() for call in state.pending}
    quiet = tuple(sorted({number for group in waiting for number in {*said.members(group)} - {*known[group]}}))
    if report.culprits or report.cycle or not quiet:
        return report, quiet
    speaking = {number: state for number, state in states.items() if number not in quiet}
    late = hang_report(speaking, {group: said.members(group) if group in waiting else known[group] for group in groups})
    return (late, ()) if late.culprits else (report, quiet)


def _is_pair(call: PendingCall) -> bool:
    """Whether a call is of some ranks of its group, which its line does not name."""
    return call.name in _POINT_TO_POINT


def _text(said: WatchdogLines, report: HangReport, waited: float, quiet: tuple[int, ...]) -> str:
    ranks = said.ranks
    lines = _disagreements(ranks)
    if report.stuck and lines:
        pass  # calls that never meet are the cause
    elif report.stuck:
        within = f" within {waited:.0f} s" if waited > 0 else ""
        lines.append(
            f"all ranks that speak have begun {'; '.join(report.stuck)}, and none finishes{within}: a rank whose "
            "lines are not here has not come to it, or the network or NCCL is broken"
        )
    elif not report.culprits and not report.cycle and not report.waits:
        lines += [
            f"rank {number} waits in {call.name} {call.number} of {call.group}; the lines of its partners are not here: "
            "import the logs of all ranks together"
            for number, rank in sorted(ranks.items())
            for call in rank.calls.values()
        ] or [_none_seen(ranks)]
    elif report.culprits:
        lines += [f"rank {number}: {_reason(why, ranks.get(number))}" for number, why in report.culprits.items()]
        lines += [line for line in report.text.splitlines() if line.startswith("chain of waiting")]
    else:
        lines += report.text.splitlines()
    ahead = [
        rank.enqueued[group] - number for rank in ranks.values() for group, number in rank.calls if group in rank.enqueued
    ]  # fmt: skip
    silent = {number for number in report.culprits if number not in ranks}
    if silent and not any(said.size(group) for rank in ranks.values() for group in rank.groups()):
        lines.append(f"if the job has ranks above {max(*ranks, *silent)}, one of those may be late instead: these lines do not say")
    if quiet and (report.culprits or report.cycle):
        lines.append(f"what {format_ranks(quiet)} do there is not in these lines")
    for place in said.unplaced:
        what = f"is in {place.name or 'call'} {place.number}" if place.joined else f"has not begun call {place.number + 1}"
        lines.append(f"rank {place.rank} of {place.group} {what}; which rank of the job that is, these lines do not say")
    if ahead and min(ahead) >= 0 and max(ahead) > 0:
        more = f"{min(ahead)} to {max(ahead)}" if min(ahead) < max(ahead) else str(max(ahead))
        lines.append(f"behind that call each rank has enqueued {more} more, which wait for it")
    return "\n".join(lines)


def _none_seen(ranks: dict[int, _Rank]) -> str:
    """What the lines say where no call is open in them. Some rank waits all the same: else the watchdog had not spoken."""
    known = sorted(number for number, rank in ranks.items() if rank.completed)
    if len(known) < len(ranks):
        silent = format_ranks(sorted(set(ranks) - set(known)))
        return f"these lines do not say in which call {silent} wait: import the logs of all ranks together"
    return (
        f"each call that {format_ranks(known)} enqueued has ended, in the groups that these lines name; a call of another rank or "
        "group did not end, or the watchdog had not spoken: import the logs of all ranks together"
    )


def _disagreements(ranks: dict[int, _Rank]) -> list[str]:
    """Calls of one number in which ranks run another operation, or another size: they never meet."""
    lines = []
    by_call: dict[tuple[str, int], dict[int, tuple[str, int, int]]] = defaultdict(dict)
    for number, rank in ranks.items():
        for key, size in rank.sizes.items():
            by_call[key][number] = size
    for (group, number), said in sorted(by_call.items()):
        kinds = Counter(said.values())
        names = Counter(name for name, _, _ in said.values())
        odd_size = len(kinds) > 1 and next(iter(names)) not in ("alltoall", "alltoall_base", "send", "recv")
        if len(names) > 1 or odd_size:
            usual = kinds.most_common(1)[0][0]
            for kind in kinds:
                if kind != usual:
                    odd = sorted(rank for rank, one in said.items() if one == kind)
                    lines.append(
                        f"in call {number} of {group}, {format_ranks(odd)} {'runs' if len(odd) == 1 else 'run'} {kind[0]}"
                        f"{f' of {kind[1]:,} elements' if kind[1] else ''}, the others {usual[0]}"
                        f"{f' of {usual[1]:,}' if usual[1] else ''}: they never meet"
                    )
    return lines


def _assumptions(ranks: dict[int, _Rank]) -> tuple[str, ...]:
    unnamed = sum((_UNKNOWN, number) in rank.calls for rank in ranks.values() for (_, number) in rank.calls)
    return ("calls without a group are of one group: these lines do not name theirs",) if unnamed else ()
