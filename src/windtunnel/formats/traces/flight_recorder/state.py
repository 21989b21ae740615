"""Dumps of the flight recorder as what each rank was in, for the analysis of hangs.

A dump lists calls that were enqueued and, by state or by absence, those that ended: newer recorders drop a call when it is
retired, so a number below the first pending one of its group is over. `pg_status` says the same in three numbers where the version
writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.hang import HangReport, PendingCall, RankState, hang_report
from windtunnel.formats.traces.flight_recorder.entries import group_of, number_of, peer_of, time_of
from windtunnel.formats.traces.kineto.calls import ranks_of
from windtunnel.records.comm_kernels import comm_of


def hang_of(dumps: Mapping[int, Mapping[str, Any]]) -> HangReport:
    """Who holds the job of these dumps up."""
    groups: dict[str, tuple[int, ...]] = {}
    labels: dict[str, str] = {}
    for dump in dumps.values():
        for name, group in dump["pg_config"].items():
            if ranks := ranks_of(group.get("ranks")):
                groups[str(name)] = ranks
                labels[str(name)] = f"group {name} ({group['desc']})" if group.get("desc") else f"group {name}"
    states = {rank: _state(rank, dump, groups, labels) for rank, dump in dumps.items()}
    return hang_report(states, {labels[name]: ranks for name, ranks in groups.items()})


def has_pending(dump: Mapping[str, Any]) -> bool:
    """Whether a dump has a call that has not ended."""
    return any(not _has_ended(entry) for entry in dump["entries"])


def _has_ended(entry: Mapping[str, Any]) -> bool:
    return entry.get("state") == "completed" or bool(entry.get("retired"))


def _state(rank: int, dump: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]], labels: Mapping[str, str]) -> RankState:
    pending: list[PendingCall] = []
    begun: dict[str, int] = {}
    first: dict[str, int] = {}  # first pending number of a group
    finished: dict[str, int] = {}
    for entry in sorted(dump["entries"], key=lambda one: number_of(one.get("record_id"))):
        name = group_of(entry)[0]
        label = labels.get(name, f"group {name}")
        number = number_of(entry.get("collective_seq_id"))
        over = _has_ended(entry)
        point = bool(entry.get("is_p2p"))
        if not point and number >= 0:
            begun[label] = max(begun.get(label, -1), number)
            if over:
                finished[label] = max(finished.get(label, -1), number)
            else:
                first.setdefault(label, number)
        if not over:
            text = str(entry.get("profiling_name", ""))
            comm = comm_of(text.split(":", 1)[-1])
            peer = peer_of(text, groups.get(name, ()), rank) if point else -1
            pending.append(PendingCall(label, number, Comm(comm), text.split(" ")[0], peer, "send" in text, time_of(entry)))
    for label, number in first.items():
        finished[label] = max(finished.get(label, -1), number - 1)
    status = dump.get("pg_status")
    for name, group in status.items() if isinstance(status, Mapping) else ():
        label = labels.get(str(name), "")
        if isinstance(group, Mapping) and label:
            begun[label] = max(begun.get(label, -1), number_of(group.get("last_enqueued_collective")))
            finished[label] = max(finished.get(label, -1), number_of(group.get("last_completed_collective")))
    doing = f"{pending[0].name} of {pending[0].group}" if pending else ""
    return RankState(rank, tuple(pending), begun, finished, doing=doing)
