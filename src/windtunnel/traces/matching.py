"""Calls of several ranks that are one collective, or two ends of one transfer."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from windtunnel.base.arrays import Bools, Int32s, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.records.run import EventKind, Events, Run

_Key = tuple[object, ...]


@dataclass(frozen=True)
class MatchedCalls:
    """P parts of M matched calls, match by match: `call[i]` is the match, `trace[i]` an index of `run.ranks`, `row[i]` its event.

    `unmatched` counts calls of a group of several ranks that no other trace shows; `guessed` says that traces name no groups, so
    that calls of one kind were matched in order over all ranks; that is done only where every rank of the job was traced.
    """

    call: Int64s  # [P] 0..M-1, sorted
    trace: Int32s  # [P]
    row: Int64s  # [P]
    comm: Int32s  # [M]
    unmatched: int = 0
    guessed: bool = False

    def __len__(self) -> int:
        return len(self.comm)


def match_calls(run: Run) -> MatchedCalls:
    """MatchedCalls of the calls on the devices; of the host's calls where no rank has a device (gloo).

    By group and the group's own sequence number where the trace gives one, else by the n-th call of the group; two ranks of a
    transfer by the pair and the n-th transfer between them. Only calls that every traced rank of the group shows are matched, and
    groups with different numbers of calls are matched from their ends, where the traces stop together.
    """
    on_device = any(np.any(trace.events.kind == EventKind.CALL) for trace in run.ranks)
    traced = [trace.rank for trace in run.ranks]
    guessed = on_device and _may_guess(run)
    books = [_book(trace.events, trace.rank, _calls(trace.events, on_device), guessed) for trace in run.ranks]
    keys = sorted({key for book in books for key in book}, key=repr)
    parts: list[tuple[int, int, int]] = []
    comms: list[int] = []
    unmatched = 0
    for key in keys:
        owners = [index for index, book in enumerate(books) if key in book]
        wanted = _members(key, traced)
        rows = [books[index][key] for index in owners]
        if len(owners) < 2 or len(owners) < len(wanted):
            unmatched += sum(map(len, rows)) if _larger(key) else 0
            continue
        count = min(map(len, rows))
        unmatched += sum(len(one) - count for one in rows)
        for at in range(count):
            chosen = [one[len(one) - count + at] for one in rows]
            kinds = {int(run.ranks[index].events.comm[row]) for index, row in zip(owners, chosen, strict=True)}
            if len(kinds) == 1:
                parts.extend((len(comms), index, row) for index, row in zip(owners, chosen, strict=True))
                comms.append(kinds.pop())
            else:
                unmatched += len(chosen)
    table = np.array(parts, np.int64).reshape(-1, 3)
    return MatchedCalls(
        table[:, 0], table[:, 1].astype(np.int32), table[:, 2], np.array(comms, np.int32), unmatched, guessed and bool(parts)
    )


def _may_guess(run: Run) -> bool:
    named = any(np.any(_calls(trace.events, True) & (trace.events.group >= 0)) for trace in run.ranks)
    world = max((trace.world for trace in run.ranks), default=0)
    return not named and world in (0, len(run.ranks))


def _calls(events: Events, on_device: bool) -> Bools:
    kind = EventKind.CALL if on_device else EventKind.OPERATOR
    return np.asarray((events.kind == kind) & (events.comm != Comm.NONE), bool)


def _book(events: Events, rank: int, calls: Bools, guessed: bool) -> dict[_Key, list[int]]:
    """Rows of the calls by what they have in common with those of other ranks, in the order of the rank."""
    book: dict[_Key, list[int]] = defaultdict(list)
    for row in np.flatnonzero(calls).tolist():
        comm, group, peer = int(events.comm[row]), int(events.group[row]), int(events.peer[row])
        ranks: tuple[int, ...] = events.groups[group] if group >= 0 else ()
        if comm == Comm.SEND_RECV and peer >= 0:
            book["pair", min(rank, peer), max(rank, peer)].append(row)
        elif group >= 0:
            name = events.group_names[group] if group < len(events.group_names) else ""
            book["group", ranks, name, comm == Comm.SEND_RECV, int(events.sequence[row])].append(row)
        elif guessed:
            book["all", comm].append(row)
    return book


def _members(key: _Key, traced: list[int]) -> list[int]:
    if key[0] == "all":
        return traced
    ranks = key[1] if key[0] == "group" else key[1:]
    return [rank for rank in traced if rank in ranks]  # type: ignore[operator]


def _larger(key: _Key) -> bool:
    return key[0] != "group" or len(key[1]) > 1  # type: ignore[arg-type]
