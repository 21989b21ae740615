"""The first call that not all ranks of its group enqueued, or that they enqueued differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.formats.traces.flight_recorder.entries import group_of
from windtunnel.formats.traces.kineto.calls import ranks_of

_Call = tuple[str, int]


def first_mismatch(dumps: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The earliest of the collectives that a rank of the group lacks (with later ones on other ranks), or has as another call.

    A rank lacks a call if its last of that group has a lower number: what was enqueued long ago has left the recorder's buffer.
    None where all agree. Later mismatches follow from the first as a rule: the ranks that lack it are the ones to look at.
    """
    calls: dict[_Call, dict[int, Mapping[str, Any]]] = {}
    last: dict[tuple[str, int], int] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    for rank, dump in dumps.items():
        for name, group in dump["pg_config"].items():
            if listed := ranks_of(group.get("ranks")):
                ranks[str(name)] = listed
        for entry in dump["entries"]:
            number, group_name = entry.get("collective_seq_id"), group_of(entry)[0]
            if entry.get("is_p2p") or not isinstance(number, int):
                continue
            calls.setdefault((group_name, number), {})[rank] = entry
            last[group_name, rank] = max(last.get((group_name, rank), -1), number)
    wrong = []
    for (group_name, number), entries in calls.items():
        members = [rank for rank in ranks.get(group_name, ()) if rank in dumps]
        missing = [rank for rank in members if rank not in entries and last.get((group_name, rank), -1) < number]
        kinds = {str(entry.get("profiling_name")) for entry in entries.values()}
        if missing or len(kinds) > 1:
            created = [entry.get("time_created_ns") for entry in entries.values()]
            known = [at for at in created if isinstance(at, (int, float))]
            wrong.append((min(known, default=float("inf")), group_name, number, missing, sorted(kinds), entries))
    if not wrong:
        return None
    _, group_name, number, missing, names, entries = min(wrong, key=lambda one: one[:3])
    entry = next(iter(entries.values()))
    group = entry.get("process_group")
    return {
        "group": group_name,
        "description": str(group[1]) if isinstance(group, (list, tuple)) and len(group) > 1 else "",
        "op": names[0] if len(names) == 1 else names,
        "sequence": number,
        "sizes": entry.get("input_sizes"),
        "dtypes": entry.get("input_dtypes"),
        "missing_ranks": missing,
        "of_ranks": list(ranks.get(group_name, ())),
    }
