"""Logs of jobs that hang, as each version of PyTorch's watchdog writes them, with lines lost, cut and written over each other.

A drawn state says which ranks of which group wait in a call and which are late; `Log` keeps what a reader may be asked for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

VERSIONS = ("2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.8", "2.13")
HEADS = ("", "{rank}: ", "[default{local}]:", "(Worker pid=34{rank}) ", "2025-05-21T03:50:19.029644300Z ", "node-{node}: ")
OPS = ("ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLTOALL_BASE", "ALLGATHER")


@dataclass(frozen=True)
class Group:
    """A group: its name in the log and its ranks of the job, in the group's order."""

    guid: int
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Log:
    """A log, and what is true: the late ranks, and whether its lines let one know (`names_late`)."""

    text: str
    version: str
    group: Group
    late: tuple[int, ...]
    whole: bool
    names_late: bool


def draw_log(draw: random.Random) -> Log:
    """A log of a job of 2 to 32 ranks in which ranks of one group wait for one or two others."""
    version = draw.choice(VERSIONS)
    tensor, copies = draw.choice([1, 2, 4]), draw.choice([2, 3, 4, 8])
    world = tensor * copies
    groups = [Group(0, "default_pg", tuple(range(world)))]
    guid = 1
    for start in range(0, world, tensor):
        groups.append(Group(guid, draw.choice(["TENSOR_MODEL_PARALLEL_GROUP"]), tuple(range(start, start + tensor))))
        guid += 1
    for offset in range(tensor):
        groups.append(Group(guid, "mesh_dp", tuple(range(offset, world, tensor))))
        guid += 1
    group = draw.choice([one for one in groups if len(one.ranks) > 1])
    late = tuple(sorted(draw.sample(group.ranks, 1 if len(group.ranks) < 4 else draw.choice([1, 1, 1, 2]))))
    number, ahead, ended = draw.randrange(2, 10**6), draw.randrange(4), draw.randrange(2, 10**6)
    op, size = draw.choice(OPS), draw.randrange(1, 10**6)
    ratio = len(group.ranks)
    sent, got = {"_ALLGATHER_BASE": (size, size * ratio), "ALLGATHER": (size, size * ratio),
                 "_REDUCE_SCATTER_BASE": (size * ratio, size)}.get(op, (size, size))  # fmt: skip
    speaks, desync = version != "2.1" and draw.random() < 0.6, draw.random() < 0.3
    head = draw.choice(HEADS)
    lines: list[tuple[int, str]] = []
    for rank in range(world):
        place = group.ranks.index(rank) if rank in group.ranks else -1
        waits = place >= 0 and rank not in late
        own = _Writer(version, rank, head)
        if waits:
            lines += own.waits(group, place, number, number + ahead, op, sent, got)
        of_default = (number + ahead, number - 1) if waits and group.guid == 0 else (ended, ended)
        of_default = (number - 1, number - 1) if rank in late and group.guid == 0 else of_default
        if waits or speaks:
            lines += own.called(waits, of_default)
    if desync:
        writer = draw.choice([rank for rank in group.ranks if rank not in late])
        lines += _Writer(version, writer, head).desync(group, number, op, late)
    if not desync and draw.random() < 0.3:
        draw.shuffle(lines)
    whole = draw.random() < 0.4
    kept = [text for _, text in lines] if whole else _damage([text for _, text in lines], draw)
    text = "step 17 loss 2.31\n" + "\n".join(kept) + "\nand one after\n"
    return Log(text, version, group, late, whole, whole and _lets_know(version, group, late, op, speaks, desync))


def _lets_know(version: str, group: Group, late: tuple[int, ...], op: str, speaks: bool, desync: bool) -> bool:
    """Whether whole lines say who is late: by its own line, by those of ranks on both sides, by the group's size, by a report."""
    sized = op in ("_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLGATHER")
    waiting = [place for place, rank in enumerate(group.ranks) if rank not in late]
    if group.guid == 0:
        top = len(group.ranks) - 1 if speaks else group.ranks[waiting[-1]]
        few = 2 * len(waiting) < top + 1 and not sized
        return desync or ((speaks or sized or max(late) < top) and not few)
    if version in ("2.1", "2.2", "2.3"):
        return False  # they number a group by process, or not at all
    between = all(place < waiting[-1] for place, rank in enumerate(group.ranks) if rank in late)
    return len(waiting) >= 2 and (between or sized or desync)


class _Writer:
    """Writes lines of one rank as a version does."""

    def __init__(self, version: str, rank: int, head: str) -> None:
        self._version, self._rank = version, rank
        self._head = head.format(rank=rank, local=rank % 8, node=rank // 8)
        self._old = version in ("2.1", "2.2", "2.3")

    def _line(self, text: str, line: int) -> tuple[int, str]:
        mark = "" if self._version == "2.1" else f"[rank{self._rank}]:"
        return self._rank, f"{self._head}{mark}[E626 06:24:44.9 ProcessGroupNCCL.cpp:{line}] {text}"

    def _group(self, group: Group, place: int) -> str:
        local = 0 if group.guid == 0 else 1 if group.name.startswith("TENSOR") else 2
        if self._version == "2.1":
            return f"[Rank {place}]"
        if self._old:
            return f"[PG {local} Rank {place}]"
        if self._version == "2.4":
            return f"[PG {group.guid} ({group.name}) Rank {place}]"
        return f"[PG ID {local} PG GUID {group.guid}({group.name}) Rank {place}]"

    def waits(self, group: Group, place: int, number: int, last: int, op: str, sent: int, got: int) -> list[tuple[int, str]]:
        """The call that timed out, and the status of its group."""
        work = f"WorkNCCL(SeqNum={number}, OpType={op}, NumelIn={sent}, NumelOut={got}, Timeout(ms)=600000)"
        ran = "ran for 600041 milliseconds before timing out."
        lines = [self._line(f"[Rank {place}] Watchdog caught collective operation timeout: {work} {ran}", 632)]
        mark = self._group(group, place)
        nccl = f"{number}, last enqueued NCCL work: {last}, last completed NCCL work: {number - 1}."
        if self._version in ("2.2", "2.3", "2.4", "2.5"):
            if self._version in ("2.4", "2.5"):
                what = "Exception (either an error or timeout) detected by watchdog at work"
                lines.append(self._line(f"{mark} {what}: {nccl}", 1664))
            lines.append(self._line(f"{mark} Timeout at NCCL work: {nccl}", 1709))
        elif self._version != "2.1":
            started = "last started work: -1, " if self._version == "2.13" else ""
            lines.append(self._line(
                f"{mark}  failure detected by watchdog at work sequence id: {number} PG status: last enqueued work: {last}, "
                f"{started}last completed work: {number - 1}", 2271
            ))  # fmt: skip
        return lines

    def called(self, waits: bool, said: tuple[int, int]) -> list[tuple[int, str]]:
        """What a rank says of the default group when it or another one calls to dump."""
        if self._version == "2.1":
            return []
        mark = self._group(Group(0, "default_pg", ()), self._rank)
        status = f"Last enqueued NCCL work: {said[0]}, last completed NCCL work: {said[1]}."
        if self._old:
            why = "timeout signal from this local rank" if waits else "global timeout from another rank"
            return [self._line(f"{mark} Received a {why} and will start to dump the debug info. {status}", 1254)]
        who = "this local rank" if waits else " rank 1"
        return [
            self._line(f"{mark} Observed flight recorder dump signal from another rank via TCPStore.", 1600),
            self._line(
                f"{mark} Received a dump signal due to a collective timeout from {who} and we will try our best to dump the debug "
                f"info. {status}This is most likely caused by incorrect usages of collectives", 1746
            ),
        ]  # fmt: skip

    def desync(self, group: Group, number: int, op: str, late: tuple[int, ...]) -> list[tuple[int, str]]:
        """The report of ranks that are not in step."""
        place = group.ranks.index(self._rank)
        joined = ", ".join(str(at) for at, rank in enumerate(group.ranks) if rank not in late)
        behind = ", ".join(str(at) for at, rank in enumerate(group.ranks) if rank in late)
        rows = [
            f"\t - [{place}] Timeout at collective: {op}, #{number}",
            "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
            f"\t     [{behind}] finished collective #{number - 1}, but didn't join collective #{number} (count from 1)",
            "\t - Snapshot of ranks' latest states:",
            f"\t   #{number - 1} finished ranks:",
            f"\t     [{behind}] finished {op}",
            f"\t   #{number} started ranks:",
            f"\t     [{joined}] started {op}",
        ]
        return [self._line(self._group(group, place) + " ", 1936), *((self._rank, self._head + row) for row in rows)]


def _damage(lines: list[str], draw: random.Random) -> list[str]:
    """Lines lost, cut at either end, and written over by the next."""
    lost, cut, over = draw.choice([0, 0.1, 0.5, 0.9]), draw.choice([0, 0.1, 0.4]), draw.choice([0, 0.1])
    kept: list[str] = []
    for line in lines:
        if draw.random() < lost:
            continue
        text = line
        if draw.random() < cut and len(text) > 2:
            at = draw.randrange(1, len(text))
            text = text[at:] if draw.random() < 0.3 else text[:at]
        if kept and draw.random() < over:
            kept[-1] += text
        else:
            kept.append(text)
    return kept
