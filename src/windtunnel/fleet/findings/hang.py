"""Hang analysis: which ranks are silent, which rank waits for which, and where the waiting ends.

Each rank has a state: how long its process has been silent, what it is doing, its pending calls, and its last call in every group.
From these:

* A rank whose process is silent (stopped, dead, or holding Python's lock) is a suspect: all others send heartbeats while they wait.
* A rank waits for the members of its call's group that have not begun the call, or for its peer of a send or receive. A rank that
  others wait for and that itself waits for nobody is the end of a chain.
* A rank with a pending call that another rank of the group has finished is blocked by its own device: the others have passed it.
* A rank without any records, where most have some, is a suspect.

The same analysis serves heartbeats of a running job and dumps of PyTorch's flight recorder.

Collectives that do not belong together: ranks of a group that call different operations, or with different sizes, at the same place
of their order, or that are in different groups.

Such a job hangs, or its library raises. While a job moves, nothing is compared: sizes of some operations may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.fleet.findings.finding import Verdict, format_ranks
from windtunnel.records.sections import Section, Sections

UNEVEN = ("all_gather", "all_to_all", "all_to_all_single", "reduce_scatter", "gather", "scatter")
"""Operations whose ranks may pass different sizes."""
LOOKED_AT = 256
"""Last calls of each group that are compared."""

_Call = tuple[int, str, int]
"""Comm, name, bytes (-1: not compared)."""


@dataclass(frozen=True)
class Mismatch:
    """A call of a group in which ranks do not agree."""

    group: str
    number: int
    ranks: tuple[int, ...]
    """Those that differ from most of the group; all, if no side has more."""
    reasons: Mapping[int, str]
    """Rank → what it called where others called something else."""


def find_mismatches(sections: Sections, labels: Sequence[str]) -> list[Mismatch]:
    """The first call of each group in which its ranks do not agree, if none of the later ones agrees. `labels`: of the groups."""
    rows = np.flatnonzero((sections.section == Section.CALL) & (sections.peer < 0) & (sections.group >= 0) & (sections.call >= 0))
    found = []
    for group in np.unique(sections.group[rows]).tolist():
        members = sections.groups[group]
        mine = rows[sections.group[rows] == group]
        if len(members) < 2 or not len(mine):
            continue
        mine = mine[sections.call[mine] > sections.call[mine].max() - LOOKED_AT]
        calls: dict[int, dict[int, _Call]] = {}
        for row in mine.tolist():
            calls.setdefault(int(sections.call[row]), {})[int(sections.rank[row])] = _call_of(sections, row)
        agreed = max((number for number, of in calls.items() if len(of) == len(members) and len(set(of.values())) == 1), default=-1)
        wrong = [number for number, of in sorted(calls.items()) if number > agreed and len(set(of.values())) > 1]
        if wrong:
            found.append(_mismatch(labels[group], wrong[0], calls[wrong[0]]))
    return found


def _call_of(sections: Sections, row: int) -> _Call:
    name = int(sections.name[row])
    text = sections.names[name] if 0 <= name < len(sections.names) else Comm(int(sections.comm[row])).name.lower()
    size = sections.bytes[row]
    known = np.isfinite(size) and text.split()[0] not in UNEVEN
    return int(sections.comm[row]), text, int(size) if known else -1


def _mismatch(group: str, number: int, calls: Mapping[int, _Call]) -> Mismatch:
    sides = Counter(calls.values()).most_common()
    most = sides[0][1]
    usual = [call for call, count in sides if count == most]
    odd = sorted(rank for rank, call in calls.items() if len(usual) > 1 or call != usual[0])
    reasons = {}
    for rank in odd:
        others: dict[_Call, list[int]] = {}
        for other, call in sorted(calls.items()):
            if call != calls[rank] and (len(usual) > 1 or call == usual[0]):
                others.setdefault(call, []).append(other)
        there = " and ".join(f"{format_ranks(ranks)} called {_describe(call)}" for call, ranks in others.items())
        reasons[rank] = f"called {_describe(calls[rank])} as call {number} of {group}, where {there}"
    return Mismatch(group, number, tuple(odd), reasons)


def _describe(call: _Call) -> str:
    _, name, size = call
    return f"{name} of {size:,} bytes" if size >= 0 else name


ONE_SIDED = (Comm.BROADCAST, Comm.REDUCE, Comm.GATHER, Comm.SCATTER, Comm.SEND_RECV)
"""Calls that one rank may finish before another has begun."""


NOT_STARTED = (
    "it wrote no record: it was not started, has not imported torch yet, or its records are on another machine. Check that "
    "WORLD_SIZE is the number of ranks that were started, and what its launcher and its log say"
)
NOT_IMPORTED = (
    "its process has started and does not move, but has not imported torch: it wrote no record. See what its script does before "
    "that import, and what its log says"
)
ENDED_EARLY = "its process ended before it imported torch. See what its log says"
NO_STORE = (
    "it does not reach the job's store. Check there that the name in MASTER_ADDR resolves, and that no firewall closes MASTER_PORT"
)

NO_LIFE = ("stopped", "zombie", "gone")
"""Process states from which a process does not recover on its own."""


def is_silent(process: str, silent: float, silence: float) -> bool:
    """Whether a process counts as silent. `silent`: seconds since its last heartbeat; `silence`: the limit."""
    return process in NO_LIFE or silent > silence


@dataclass(frozen=True)
class PendingCall:
    """A call that a rank began and has not finished."""

    group: str
    number: int
    comm: Comm = Comm.NONE
    name: str = ""
    peer: int = -1
    sends: bool = False
    begin: float = float("nan")
    """Unix seconds, or NaN."""
    joins: bool = False
    """Whether it is one with which all ranks come together, before or between others (`Section.JOIN`)."""


@dataclass(frozen=True)
class RankState:
    """State of a rank that may hang."""

    rank: int
    pending: tuple[PendingCall, ...] = ()
    """Oldest first."""
    begun: Mapping[str, int] = field(default_factory=dict)
    """Number of the last call begun, by group; unknown if missing."""
    finished: Mapping[str, int] = field(default_factory=dict)
    """Number of the last call finished, by group; unknown if missing."""
    silent: float = 0.0
    """Seconds since the last heartbeat; 0 if it is recent or unknown."""
    process: str = ""
    """"running", "sleeping", "stopped", "zombie", "gone", "ended"; empty if unknown."""
    doing: str = ""
    """Current activity, for people."""
    since: float = float("nan")
    """Seconds for which it has been doing it."""
    host: str = ""
    stack: str = ""
    threads: str = ""
    """Exceptions that ended threads of it."""


@dataclass(frozen=True)
class HangReport:
    """Result of the hang analysis."""

    culprits: Mapping[int, str]
    """Rank → reason."""
    waits: Mapping[int, Mapping[int, str]]
    """Waiting rank → ranks that it waits for, with the call."""
    chain: tuple[int, ...]
    """Ranks from a waiting rank to a culprit."""
    cycle: tuple[int, ...]
    """Ranks that wait for each other in a circle."""
    stuck: tuple[str, ...]
    """Calls that all ranks have begun and none finishes: the transport is suspect, not a rank."""
    text: str
    crash: bool = False
    """A rank has ended, and the job with it: `culprits` says how."""

    @property
    def verdict(self) -> Verdict:
        """CRASH or HANG."""
        return Verdict.CRASH if self.crash else Verdict.HANG

    def as_dict(self) -> dict[str, Any]:
        """Plain data; ranks as text keys."""
        return {
            "culprits": {str(rank): why for rank, why in self.culprits.items()},
            "waits": {str(rank): {str(other): call for other, call in on.items()} for rank, on in self.waits.items()},
            "chain": list(self.chain), "cycle": list(self.cycle), "stuck": list(self.stuck), "text": self.text,
            "crash": self.crash,
        }  # fmt: skip


def hang_report(
    states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]], *, silence: float = 2.0, settled: bool = True,
    mismatches: Sequence[Mismatch] = (), starting: Mapping[int, int] = MappingProxyType({}),
) -> HangReport:  # fmt: skip
    """Finds the ranks that block the job. `groups`: ranks of each group; `silence`: seconds without a heartbeat after which a
    process counts as silent.

    `settled`: the job is stalled. If it may still make progress, states of living ranks are outdated when they are read, so only
    silent processes are named if there are any. `mismatches`: calls in which ranks do not agree; those that differ are named.
    `starting`: ranks that have begun and have no record, with the id of the process, 0 if it has ended.
    """
    culprits: dict[int, str] = {}
    for rank, state in sorted(states.items()):
        if is_silent(state.process, state.silent, silence):
            culprits[rank] = _silence_reason(state)
    silent = set(culprits)
    moving = bool(silent) and not settled
    apart = () if moving else tuple(mismatches)
    for one in apart:
        culprits.update({rank: why for rank, why in one.reasons.items() if rank not in culprits})
    everyone = {rank for ranks in groups.values() for rank in ranks}
    unknown = everyone - set(states)
    joining = any(call.joins for state in states.values() for call in state.pending)
    absent: dict[int, str] = {}
    if joining and states:
        here = {rank: NOT_IMPORTED if pid else ENDED_EARLY for rank, pid in starting.items()}
        absent = {rank: here.get(rank, NOT_STARTED) for rank in sorted(unknown)}
    elif states and len(unknown) <= len(states):
        absent = dict.fromkeys(sorted(unknown), "nothing is known of it: it wrote no record")
    else:
        unknown = set()
    if not moving:
        culprits.update(absent)
        agreeing = {name: ranks for name, ranks in groups.items() if name not in {one.group for one in apart}}
        culprits.update({rank: why for rank, why in _held_by_device(states, agreeing, silent).items() if rank not in culprits})
        culprits.update({rank: why for rank, why in _held_at_store(states, agreeing).items() if rank not in culprits})
    waits = {rank: on for rank, state in states.items() if (on := _waits_for(state, states, groups, unknown, silent))}
    awaited = {other for on in waits.values() for other in on}
    for rank in sorted(awaited - set(waits) - set(culprits)):
        serves = rank == 0 and any(call.joins for call in states[0].pending) if rank in states else False
        if not moving and not apart and not (serves and culprits):  # it serves the store, until the last has come
            culprits[rank] = _absence_reason(rank, states.get(rank), waits)
    cycle = () if culprits else _cycle(waits)
    if cycle:
        culprits.update(_outside_the_usual_call(states, waits))
    stuck = () if culprits or cycle else _stuck_calls(states, groups)
    chain = _chain(waits, set(culprits))
    culprits = dict(sorted(culprits.items()))
    return HangReport(culprits, waits, chain, cycle, stuck, _report_text(culprits, waits, chain, cycle, stuck, states, groups))


def _outside_the_usual_call(states: Mapping[int, RankState], waits: Mapping[int, Mapping[int, str]]) -> dict[int, str]:
    """Of ranks that wait for each other: those that are in another call than most of them. None if no call has most."""
    inside: dict[tuple[str, int], list[int]] = {}
    calls: dict[tuple[str, int], str] = {}
    for rank in sorted(waits):
        call = next((one for one in states[rank].pending if one.peer < 0), None)
        if call is not None:
            inside.setdefault((call.group, call.number), []).append(rank)
            calls[call.group, call.number] = _describe_call(call)
    ordered = sorted(inside, key=lambda key: -len(inside[key]))
    if len(ordered) < 2 or len(inside[ordered[0]]) == len(inside[ordered[1]]):
        return {}
    there = f"{format_ranks(inside[ordered[0]])} are in {calls[ordered[0]]}"
    return {rank: f"is in {calls[key]}, where {there}" for key in ordered[1:] for rank in inside[key]}


def _silence_reason(state: RankState) -> str:
    what = {"stopped": "its process is stopped", "zombie": "its process is dead", "gone": "its process is gone"}.get(state.process)
    what = what or f"its process has sent no heartbeat for {state.silent:.1f} s"
    return (f"{what}; last in {state.doing}" if state.doing else what) + state.threads


def _held_by_device(states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]], silent: set[int]) -> dict[int, str]:
    """Ranks with a pending call that another rank of the group has finished, unless a silent rank is inside the call: bytes pass
    through the ranks of a ring, and those behind the silent rank wait for it while those before it are done.
    """
    held = {}
    for rank, state in states.items():
        for call in state.pending:
            if call.joins or call.peer >= 0 or call.comm in ONE_SIDED or _silent_inside(call, states, groups, silent):
                continue
            past = [
                other for other in groups.get(call.group, ())
                if other != rank and other in states and states[other].finished.get(call.group, -1) >= call.number
            ]  # fmt: skip
            if past:
                passed = f"which {format_ranks(past)} finished"
                held[rank] = f"has not finished {_describe_call(call)}, {passed}: its own device or host blocks it"
                break
    return held


def _held_at_store(states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]]) -> dict[int, str]:
    """Ranks that are still in a call with which all ranks come together while others have finished it, if all have begun it. Rank
    0, which serves the store, ends there last: it is named only if no other is.
    """
    held = {}
    for rank, state in states.items():
        for call in state.pending:
            others = [states.get(other) for other in groups.get(call.group, ()) if other != rank]
            come = all(other is not None and other.begun.get(call.group, -1) >= call.number for other in others)
            past = [o for o in others if o is not None and o.finished.get(call.group, -1) >= call.number]
            if call.joins and come and past:
                passed = f"which {format_ranks([other.rank for other in past])} finished"
                why = NO_STORE if call.name == "store" else "its own host blocks it"
                held[rank] = f"has not finished {_describe_call(call)}, {passed}: {why}"
    return {rank: why for rank, why in held.items() if rank or len(held) == 1}


def _silent_inside(
    call: PendingCall, states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]], silent: set[int]
) -> list[int]:
    """Silent ranks of a call's group that have not finished the call."""
    return [
        rank for rank in groups.get(call.group, ()) if rank in silent and states[rank].finished.get(call.group, -1) < call.number
    ]  # fmt: skip


def _waits_for(
    state: RankState, states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]], unknown: set[int], silent: set[int]
) -> dict[int, str]:
    """The ranks that a rank waits for in its pending calls: those that have not begun them, and silent ones inside them."""
    on: dict[int, str] = {}
    for call in state.pending:
        if call.peer >= 0:
            peer = states.get(call.peer)
            if call.peer in unknown or (peer is not None and not _has_counterpart(peer, state.rank, call)):
                on.setdefault(call.peer, _describe_call(call))
            continue
        for other in _silent_inside(call, states, groups, silent - {state.rank}):
            on.setdefault(other, _describe_call(call))
        for other in groups.get(call.group, ()):
            known = states.get(other)
            if other == state.rank or (known is None and other not in unknown):
                continue
            if known is None or known.begun.get(call.group, -1) < call.number:
                on.setdefault(other, _describe_call(call))
    return on


def _has_counterpart(peer: RankState, rank: int, call: PendingCall) -> bool:
    """Whether a peer is in the other half of a send or receive."""
    halves = [one for one in peer.pending if one.peer == rank and one.sends != call.sends]
    return bool(halves)


def _absence_reason(rank: int, state: RankState | None, waits: Mapping[int, Mapping[int, str]]) -> str:
    calls = Counter(on[rank] for on in waits.values() if rank in on)
    call = max(calls, key=lambda one: (calls[one], one))
    waiting = sorted(one for one, on in waits.items() if on.get(rank) == call)
    doing = ""
    if state and state.doing:
        doing = f"; it {state.doing}" if state.process == "ended" else f"; it is in {state.doing}"
        doing += f" for {state.since:.1f} s" if state.since == state.since else ""
        doing += state.threads
    return f"has not begun {call}, in which {format_ranks(waiting)} wait{'s' if len(waiting) == 1 else ''}{doing}"


def _describe_call(call: PendingCall) -> str:
    name = call.name or call.comm.name.lower()
    number = f" {call.number}" if call.number >= 0 else ""
    return f"{name}{number} of {call.group}" if call.group else f"{name}{number}"


def _chain(waits: Mapping[int, Mapping[int, str]], ends: set[int]) -> tuple[int, ...]:
    """The longest of the shortest paths from a waiting rank to a culprit."""
    best: tuple[int, ...] = ()
    for start in waits:
        if start in ends:
            continue
        ways: dict[int, tuple[int, ...]] = {start: (start,)}
        todo = [start]
        for rank in todo:
            if rank in ends:
                if len(ways[rank]) > len(best):
                    best = ways[rank]
                break
            for other in waits.get(rank, {}):
                if other not in ways:
                    ways[other] = (*ways[rank], other)
                    todo.append(other)
    return best


def _cycle(waits: Mapping[int, Mapping[int, str]]) -> tuple[int, ...]:
    """Ranks that wait for each other in a circle."""
    for start in sorted(waits):
        way, seen = [start], {start}
        while True:
            following = [other for other in waits.get(way[-1], {})]
            if not following:
                break
            if following[0] in seen:
                return tuple(way[way.index(following[0]) :])
            way.append(following[0])
            seen.add(following[0])
    return ()


def _stuck_calls(states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Calls that every rank of the group has begun and none has finished."""
    found = []
    for name, ranks in groups.items():
        known = [states[rank] for rank in ranks if rank in states]
        numbers = {call.number for state in known for call in state.pending if call.group == name and call.peer < 0}
        for number in sorted(numbers):
            inside = [state for state in known if any(call.group == name and call.number == number for call in state.pending)]
            if len(inside) == len(ranks) > 1:
                call = next(one for one in inside[0].pending if one.group == name and one.number == number)
                found.append(f"{_describe_call(call)} of {format_ranks(ranks)}")
                break
    return tuple(found)


def _report_text(
    culprits: Mapping[int, str], waits: Mapping[int, Mapping[int, str]], chain: tuple[int, ...], cycle: tuple[int, ...],
    stuck: tuple[str, ...], states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]],
) -> str:  # fmt: skip
    if culprits:
        late = any(why in (NOT_STARTED, NOT_IMPORTED, ENDED_EARLY) for why in culprits.values())
        same = [rank for rank, why in culprits.items() if why == NOT_STARTED]
        lines = [f"rank {rank}: {why}" for rank, why in culprits.items() if len(same) < 2 or rank not in same]
        if len(same) > 1:
            lines.append(f"{format_ranks(same)}: {NOT_STARTED}")
        if late and waits:
            lines.append(f"{format_ranks(sorted(waits))} wait for {'it' if len(culprits) == 1 else 'them'}")
        if len(chain) > 2:
            lines.append("chain of waiting: " + " → ".join(str(rank) for rank in chain))
        return "\n".join(lines)
    if cycle:
        steps = [f"rank {rank} waits in {next(iter(waits[rank].values()))}" for rank in cycle]
        return f"{format_ranks(cycle)} wait for each other in a circle: " + "; ".join(steps)
    if stuck:
        return "all ranks have begun, but none finishes: " + "; ".join(stuck) + ". Suspect the network or the communication library"
    if waits:
        return "ranks wait, but no culprit can be named"
    unclear = unclear_ranks(states, groups)
    if not states:
        return "no rank has a record, so it is not known whether one waits for another"
    if unclear:
        who = format_ranks(unclear)
        return f"no rank is seen to wait for another, but the last calls of {who} are not known to have ended"
    return "no rank waits for another"


def unclear_ranks(states: Mapping[int, RankState], groups: Mapping[str, tuple[int, ...]]) -> list[int]:
    """Ranks of which it is not known that their last call has ended: it is open, or there is no record of one, or none in a group
    in which others have made calls.
    """
    used = {group for state in states.values() for group in state.begun}
    found = {rank for ranks in groups.values() for rank in ranks} - set(states)
    for rank, state in states.items():
        member = {name for name, ranks in groups.items() if rank in ranks and name in used}
        is_open = any(state.finished.get(group, -1) < number for group, number in state.begun.items())
        silent = not (state.begun or state.finished) or bool(member - {*state.begun, *state.finished})
        if state.pending or is_open or (silent and state.process != "ended"):
            found.add(rank)
    return sorted(found)
