"""A predicted step as the traces that PyTorch's profiler would write of it: a Chrome JSON for one rank of each pipeline stage.

The names of categories and arguments are the profiler's, so that the measured trace and this one open side by side, and so that
our own importer reads them back as the same run.
"""

from __future__ import annotations

import json
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.exports.exporters import Written
from windtunnel.records.run import EventKind, Events, RankTrace, Run
from windtunnel.runs.expected import NCCL_NAMES, SEND_RECV_NAME, expected_run
from windtunnel.spec import Job

_NAMES = {
    Comm.ALL_REDUCE: "allreduce",
    Comm.ALL_GATHER: "_allgather_base",
    Comm.REDUCE_SCATTER: "_reduce_scatter_base",
    Comm.ALL_TO_ALL: "all_to_allv",
    Comm.BROADCAST: "broadcast",
    Comm.SEND_RECV: "send",
    Comm.REDUCE: "reduce",
    Comm.GATHER: "gather",
    Comm.SCATTER: "scatter",
}
"""Names of calls in the profiler's arguments."""
_ELEMENT = 1
"""Bytes of an element of calls: a step's calls have several formats, so they are counted in bytes (dtype Byte)."""
_HOST_PROCESS = 1_000_000


def export(job: Job, options: dict[str, str]) -> Written:
    """`rank-N.json` for the first rank of every pipeline stage. No options."""
    if options:
        raise SpecError("--option", next(iter(options)), "no option of this format")
    run = expected_run(job)
    files: dict[str, str | bytes] = {f"rank-{trace.rank}.json": text_of(trace, run) for trace in run.ranks}
    left = ("operators of the framework: launches stand on one thread of the host",)
    assumed = (f"{len(run.ranks)} of {job.cluster.gpus} ranks, the first of each pipeline stage, which stand for the others",)
    return Written(files, left, assumed)


def text_of(trace: RankTrace, run: Run) -> str:
    """The trace of one rank."""
    events = trace.events
    listed = [_step(trace, run)] + [_event(events, trace.rank, at) for at in range(len(events))]
    table = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": trace.device}],
        "distributedInfo": {"backend": "nccl", "rank": trace.rank, "world_size": trace.world},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": trace.source,
        "traceEvents": [event for event in listed if event is not None],
    }
    return json.dumps(table, separators=(",", ":")) + "\n"


def _step(trace: RankTrace, run: Run) -> dict[str, Any] | None:
    mine = run.steps.rank == trace.rank
    if not mine.any():
        return None
    begin, seconds, number = run.steps.begin[mine][0], run.steps.seconds[mine][0], run.steps.step[mine][0]
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{int(number)}", "pid": _HOST_PROCESS, "tid": _HOST_PROCESS,
            "ts": float(begin) * 1e6, "dur": float(seconds) * 1e6, "args": {}}  # fmt: skip


def _event(events: Events, rank: int, at: int) -> dict[str, Any]:
    kind, lane = EventKind(int(events.kind[at])), int(events.lane[at])
    host = kind in (EventKind.LAUNCH, EventKind.SYNC)
    args: dict[str, Any] = {"correlation": int(events.correlation[at]) + 1} if events.correlation[at] >= 0 else {}
    if not host:
        args |= {"device": 0, "stream": lane}
    name = events.names[int(events.name[at])]
    if kind is EventKind.CALL:
        args |= _call(events, rank, at)
        name = NCCL_NAMES.get(Comm(int(events.comm[at])), SEND_RECV_NAME)  # by which every reader knows a call
    return {
        "ph": "X", "cat": "cuda_runtime" if host else "kernel", "name": name,
        "pid": _HOST_PROCESS if host else 0, "tid": _HOST_PROCESS if host else lane,
        "ts": float(events.begin[at]) * 1e6, "dur": float(events.seconds[at]) * 1e6, "args": args,
    }  # fmt: skip


def _call(events: Events, rank: int, at: int) -> dict[str, Any]:
    """The arguments of a call, as ParamCommsUtils.hpp names them."""
    comm, group = Comm(int(events.comm[at])), int(events.group[at])
    ranks = events.groups[group] if group >= 0 else (rank,)
    total = int(round(float(events.bytes[at]) / _ELEMENT))
    part = max(1, total // max(1, len(ranks)))
    sent = part if comm in (Comm.ALL_GATHER, Comm.GATHER) else total
    received = part if comm in (Comm.REDUCE_SCATTER, Comm.SCATTER) else total
    args: dict[str, Any] = {
        "Collective name": _NAMES.get(comm, "allreduce"), "dtype": "Byte", "In msg nelems": sent, "Out msg nelems": received,
        "Group size": len(ranks), "Process Group Name": str(group), "Process Group Description": events.group_names[group],
        "Process Group Ranks": str(list(ranks)), "Rank": rank,
    }  # fmt: skip
    if events.sequence[at] >= 0:
        args["Seq"] = int(events.sequence[at])
    return args
