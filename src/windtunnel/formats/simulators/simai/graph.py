"""A workload of SimAI as a trace graph of its first rank."""

from __future__ import annotations

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.simai.workload import PASSES, POLICIES, SimaiLayer, SimaiWorkload
from windtunnel.formats.traces.task_columns import TaskColumns
from windtunnel.records.trace_graph import TaskKind, TraceGraph

CALLS = {
    "ALLREDUCE": Comm.ALL_REDUCE, "ALLGATHER": Comm.ALL_GATHER, "REDUCESCATTER": Comm.REDUCE_SCATTER, "ALLTOALL": Comm.ALL_TO_ALL,
}  # fmt: skip
MOST_RANKS = 2**20


def ranks_of(workload: SimaiWorkload) -> int:
    """GPUs of the job: as stated, else the least that the degrees need, with two replicas where weights are reduced."""
    least = workload.degree("tp") * workload.degree("ep") * workload.degree("pp")
    reduces = any(layer.calls[2] != "NONE" and layer.bytes[2] for layer in workload.layers)
    ranks = workload.keys.get("gpus") or least * (2 if reduces else 1)
    if ranks % least or ranks > MOST_RANKS:
        raise SpecError("all_gpus", ranks, f"a multiple of tp x ep x pp = {least}, at most {MOST_RANKS}")
    return ranks


def groups_of(workload: SimaiWorkload) -> dict[str, list[tuple[int, ...]]]:
    """All groups of TP, EP, DP and DP_EP in Megatron's order: tp fastest, then dp (whose first part is ep), then pp."""
    tp, ep, pp, ranks = workload.degree("tp"), workload.degree("ep"), workload.degree("pp"), ranks_of(workload)
    dp = ranks // (tp * pp)
    stages = [stage * tp * dp for stage in range(pp)]
    return {
        "TP": [tuple(range(first, first + tp)) for first in range(0, ranks, tp)],
        "DP": [tuple(range(s + t, s + tp * dp, tp)) for s in stages for t in range(tp)],
        "EP": [tuple(range(s + e + t, s + e + tp * ep, tp)) for s in stages for e in range(0, tp * dp, tp * ep) for t in range(tp)],
        "DP_EP": [tuple(range(s + t, s + tp * dp, tp * ep)) for s in stages for t in range(tp * ep)],
    }


def graph_of(workload: SimaiWorkload) -> TraceGraph:
    """Rank 0. Forward passes, then backward from the last line on: a call of activations holds up what follows, that of weights
    runs beside it, and the update waits for it."""
    out = TaskColumns()
    out.rank(0)
    groups = groups_of(workload)
    own = {axis: out.group_of(rows[0]) for axis, rows in groups.items() if len(rows[0]) > 1}
    for rows in groups.values():
        for row in rows:
            if len(row) > 1:
                out.group_of(row)

    def one(layer: SimaiLayer, at: int, after: list[int], label: str = "") -> tuple[int, int]:
        name = label or PASSES[at]
        done = out.add(f"{layer.name} {name}", TaskKind.COMPUTE, layer.compute[at] * 1e-9, deps=after)
        call = next((known for known in CALLS if layer.calls[at].startswith(known)), "")
        axis = layer.calls[at][len(call) + 1 :] or ("DP" if at == 2 else "TP")
        if not call or layer.bytes[at] < 1 or axis not in own:
            return done, done
        kind = CALLS[call]
        return done, out.add(f"{layer.name} {name} {kind.name.lower()}", TaskKind.COLLECTIVE, size=float(layer.bytes[at]),
                             comm=int(kind), group=own[axis], deps=[done])  # fmt: skip

    last: list[int] = []
    for layer in workload.layers:
        last = [one(layer, 0, last)[1]]
    again = _recomputed_lines(workload)
    for at in range(len(workload.layers) - 1, -1, -1):
        for number in again.get(at, ()):
            last = [one(workload.layers[number], 0, last, "recompute")[1]]
        layer = workload.layers[at]
        last = [one(layer, 1, last)[1]]
        computed, reduced = one(layer, 2, last)
        out.add(f"{layer.name} update", TaskKind.COMPUTE, layer.update * 1e-9, deps=[reduced])
        last = [computed]
    return out.graph()


def _recomputed_lines(workload: SimaiWorkload) -> dict[int, range]:
    """Line before whose backward pass lines run forward again: from the nearest checkpoint at or before it."""
    if workload.policy != POLICIES[0]:
        return {}
    out = {}
    for line in workload.initiates:
        before = [one for one in workload.checkpoints if one <= line]
        if before and line < len(workload.layers):
            out[line] = range(max(before), line)
    return out


def left_out(workload: SimaiWorkload) -> tuple[str, ...]:
    """What the graph does not hold, for the reader."""
    out = []
    if workload.degree("pp") > 1:
        size = workload.keys.get("pp_bytes", 0)
        out.append(
            f"{workload.degree('pp')} stages: the file has the lines of one, without its messages ({size} bytes) and the bubble"
        )
    return tuple(out)
