"""Lines of PyTorch's NCCL watchdog: which call each rank waits in, and who is late.

Forms of torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp from 1.13 to 2.9. A call that timed out names its number, kind and size;
another line of the same rank its group, and the last calls that were enqueued and completed. The rank in front of a line
(`[rank3]:`) counts over the job, the one inside (`Rank 3`) over its group.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.finding import format_ranks
from windtunnel.fleet.findings.hang import HangReport, PendingCall, RankState, hang_report
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.word_lines import WordLines
from windtunnel.records.comm_kernels import comm_of

WORDS = (
    "WorkNCCL(",
    "last enqueued",
    "watchdog got stuck",
    "Timeout at collective: ",
    " collective #",
    "never joined any collectives",
)
_WORK = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<op>\w+), "
    r"(?:TensorShape=\[(?P<shape>[\d, ]*)\]|NumelIn=(?P<sent>\d+), NumelOut=(?P<got>\d+)), Timeout\(ms\)=(?P<limit>\d+)\)"
    r"(?: ran for (?P<ran>\d+) milliseconds)?"
)
_STATUS = re.compile(
    r"(?:at work(?: sequence id)?|at NCCL work): (?P<number>\d+).{0,20}?last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), "
    r"last completed (?:NCCL )?work: (?P<completed>-?\d+)"
)
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d+) seconds")
_TIMED_OUT = re.compile(r"\[(?P<rank>\d+)\] Timeout at collective: (?P<op>\w+), #(?P<number>\d+)")
_JOINED = re.compile(r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<number>\d+)")
_MISSED = re.compile(r"\[(?P<ranks>[\d, ]+)\] finished collective #(?P<number>\d+), but didn't join collective #\d+")
_NEVER = re.compile(r"ranks? \[(?P<ranks>[\d, ]+)\] are the lagging ranks .{0,80}never joined any collectives")
"""Lines of the report of a desynchronisation (torch/csrc/distributed/c10d/TraceUtils.h), which speak of ranks of the group."""
_RANK = re.compile(r"\[(?:PG (?:ID )?(?P<group>\d+)(?: PG GUID [^\]]*?)?(?: ?\((?P<name>\w+)\))? )?Rank (?P<rank>\d+)\]")
_GLOBAL = re.compile(r"\[rank(?P<rank>\d+)\]")
_UNKNOWN = "the default group"
_NO_SIZE = ("", -1, -1)
_MOST_RANKS = 1 << 20


@dataclass
class _Rank:
    """What the lines of a rank say: its calls that timed out, by group and number, and the last calls of each group."""

    calls: dict[tuple[str, int], PendingCall] = field(default_factory=dict)
    sizes: dict[tuple[str, int], tuple[str, int, int]] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)
    waited: float = 0.0
    stuck: float = 0.0


def recognises(head: Head) -> bool:
    """A call of the watchdog that timed out, the status of its group, or a report of ranks that are not in step."""
    return any(pattern.search(head.text) is not None for pattern in (_WORK, _TIMED_OUT, _JOINED, _MISSED, _NEVER)) or (
        "watchdog" in head.text and (_STATUS.search(head.text) is not None or _STUCK.search(head.text) is not None)
    )


def read(files: Sequence[Path], context: Context) -> Reading:
    """Who is late, in which call. FileError where no line is the watchdog's."""
    ranks: dict[int, _Rank] = defaultdict(_Rank)
    broken: list[str] = []
    for path in files:
        lines = WordLines(path, WORDS, context.progress)
        for text in lines:
            take_line(text, ranks)
        broken.extend(lines.broken)
    if not ranks:
        raise FileError(
            str(files[0]), "no line of PyTorch's watchdog", "lines such as `Watchdog caught collective operation timeout`"
        )
    _find_groups(ranks)
    facts = facts_of(ranks)
    built = (f"the calls that {len(ranks)} ranks wait in",)
    return Reading("nccl-watchdog", Content.EVIDENCE, facts, facts, built, (), _assumptions(ranks), tuple(broken))


def take_line(text: str, ranks: dict[int, _Rank]) -> None:
    """Takes one line into what is known of its rank; a line of another kind changes nothing."""
    if _take_desync(text, ranks):
        return
    inside, outside = _RANK.search(text), _GLOBAL.search(text)
    if inside is None and outside is None:
        return
    of_job = outside or inside
    assert of_job is not None
    rank = ranks[int(of_job["rank"])]
    group = _group_of(inside)
    if (work := _WORK.search(text)) is not None:
        number = int(work["number"]) if work["number"] else -1
        call = PendingCall(
            group, number, comm_of(work["op"].lower().strip("_").removesuffix("_base")), work["op"].strip("_").lower()
        )
        rank.calls[group, number] = call
        rank.sizes[group, number] = (call.name, int(work["sent"] or 0), int(work["got"] or 0))
        rank.waited = max(rank.waited, int(work["ran"] or work["limit"]) / 1e3)
    elif (status := _STATUS.search(text)) is not None:
        number = int(status["number"])
        _name_group(rank, group, number)
        rank.completed[group] = int(status["completed"])
        rank.enqueued[group] = int(status["enqueued"])
    elif (stuck := _STUCK.search(text)) is not None:
        rank.stuck = float(stuck["seconds"])


def _take_desync(text: str, ranks: dict[int, _Rank]) -> bool:
    """Takes a line of a report of ranks that are not in step; whether it is one."""
    if (out := _TIMED_OUT.search(text)) is not None:
        name = out["op"].strip("_").lower()
        _join(ranks[int(out["rank"])], int(out["number"]), name)
    elif (joined := _JOINED.search(text)) is not None:
        for rank in _numbers(joined["ranks"]):
            _join(ranks[rank], int(joined["number"]), "")
    elif (missed := _MISSED.search(text) or _NEVER.search(text)) is not None:
        number = int(missed["number"]) if "number" in missed.re.groupindex else 0
        for rank in _numbers(missed["ranks"]):
            ranks[rank].completed.setdefault(_UNKNOWN, number)
            ranks[rank].enqueued.setdefault(_UNKNOWN, number)
    else:
        return False
    return True


def _join(rank: _Rank, number: int, name: str) -> None:
    """A rank has begun a call and not finished it, as others report; what it says itself counts more."""
    if not any(known == number and (name or call.name) for (_, known), call in rank.calls.items()):
        comm = comm_of(name.removesuffix("_base")) if name else Comm.NONE
        rank.calls[_UNKNOWN, number] = PendingCall(_UNKNOWN, number, comm, name)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d{1,9}", text)][:_MOST_RANKS]


def _group_of(inside: re.Match[str] | None) -> str:
    if inside is None or inside["group"] is None:
        return _UNKNOWN
    return inside["name"] or f"group {inside['group']}"


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
                named[number, call.name]
                if (number, call.name) in named
                else alike.get(rank.sizes.get((group, number), _NO_SIZE), set())
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


def facts_of(ranks: dict[int, _Rank]) -> dict[str, Any]:
    """Calls by group and number with the ranks in them, and the hang."""
    report = _report(ranks)
    calls = []
    for group, number in sorted({key for rank in ranks.values() for key in rank.calls}):
        inside = sorted(rank for rank, said in ranks.items() if (group, number) in said.calls)
        sized = next((ranks[rank].sizes[group, number] for rank in inside if (group, number) in ranks[rank].sizes), None)
        sizes = {} if sized is None else {"sent": sized[1], "received": sized[2]}
        name = ranks[inside[0]].calls[group, number].name if sized is None else sized[0]
        calls.append({"group": group, "number": number, "op": name, **sizes, "ranks": format_ranks(inside)})
    waited = max(max(rank.waited, rank.stuck) for rank in ranks.values())
    hang = report.as_dict()
    hang["culprits"] = {rank: _reason(why, ranks.get(int(rank))) for rank, why in hang["culprits"].items()}
    return {"ranks": len(ranks), "waited_s": waited, "calls": calls, "hang": hang | {"text": _text(ranks, report, waited)}}


def _reason(why: str, rank: _Rank | None) -> str:
    """A reason for a rank whose watchdog hangs, in the watchdog's words: no line here knows of heartbeats."""
    if rank is None or not rank.stuck:
        return why
    stuck = f"its watchdog got stuck for {rank.stuck:.0f} s: a call of CUDA or NCCL, or Python's lock, blocks its process"
    return why.replace(f"its process has sent no heartbeat for {rank.stuck:.1f} s", stuck)


def _report(ranks: dict[int, _Rank]) -> HangReport:
    states, groups = {}, defaultdict(set)
    for number, rank in ranks.items():
        pending = tuple(sorted(rank.calls.values(), key=lambda call: call.number))
        begun = {call.group: call.number for call in reversed(pending)}
        for call in pending:
            groups[call.group].add(number)
        for group, enqueued in rank.enqueued.items():
            groups[group].add(number)
            begun[group] = max(enqueued, begun.get(group, enqueued))
        finished = {call.group: call.number - 1 for call in reversed(pending) if call.number >= 0} | rank.completed
        states[number] = RankState(number, pending, begun, finished, silent=rank.stuck)
    whole = {group: _members(group, members, ranks) for group, members in groups.items()}
    return hang_report(states, whole)


def _members(group: str, members: set[int], ranks: dict[int, _Rank]) -> tuple[int, ...]:
    """Ranks of a group: those that speak of it, and, of one that holds the whole job, those between that are silent."""
    everyone = tuple(range(max(ranks) + 1))
    of_job = group in (_UNKNOWN, "default_pg", "group 0")
    return everyone if of_job and len(everyone) <= 2 * len(members) else tuple(sorted(members))


def _text(ranks: dict[int, _Rank], report: HangReport, waited: float) -> str:
    lines = _disagreements(ranks)
    if report.stuck:
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
        ] or [_all_clear(ranks)]
    elif report.culprits:
        lines += [f"rank {number}: {_reason(why, ranks.get(number))}" for number, why in report.culprits.items()]
        lines += [line for line in report.text.splitlines() if line.startswith("chain of waiting")]
    else:
        lines += report.text.splitlines()
    ahead = [
        rank.enqueued[group] - number for rank in ranks.values() for group, number in rank.calls if group in rank.enqueued
    ]  # fmt: skip
    if ahead and min(ahead) >= 0 and max(ahead) > 0:
        more = f"{min(ahead)} to {max(ahead)}" if min(ahead) < max(ahead) else str(max(ahead))
        lines.append(f"behind that call each rank has enqueued {more} more, which wait for it")
    return "\n".join(lines)


def _all_clear(ranks: dict[int, _Rank]) -> str:
    """What holds where no rank waits for another: that all calls have ended is said only of ranks whose last calls are known."""
    silent = sorted(number for number, rank in ranks.items() if not rank.completed)
    if silent:
        return f"these lines do not say in which call {format_ranks(silent)} wait: import the logs of all ranks together"
    return (
        f"no rank waits for another: each call that {format_ranks(sorted(ranks))} enqueued has ended; ranks that do not speak may"
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
                        f"in call {number} of {group}, {format_ranks(odd)} run {kind[0]} of {kind[1]:,} elements, "
                        f"the others {usual[0]} of {usual[1]:,}: they never meet"
                    )
    return lines


def _assumptions(ranks: dict[int, _Rank]) -> tuple[str, ...]:
    unnamed = sum((_UNKNOWN, number) in rank.calls for rank in ranks.values() for (_, number) in rank.calls)
    return ("calls without a group are of one group: these lines do not name theirs",) if unnamed else ()
