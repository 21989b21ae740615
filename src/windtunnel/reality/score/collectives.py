"""Collective calls: times of nccl-tests compared with the closed form."""

from __future__ import annotations

import re

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.network import collective, flat_group
from windtunnel.reality.jobs.machine import Place, machine
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import CollectiveRow
from windtunnel.reality.score.scores import Score
from windtunnel.spec import Cluster
from windtunnel.workload.ops import Comm

COMMS = {comm.name.lower().replace("_", ""): comm for comm in Comm if comm is not Comm.NONE}
"""By the name of the nccl-tests program, without `_`, `-` and `_perf`."""

WARM_UP_BYTES = 256
"""Below this the first call of a sweep is a warm-up artefact."""

MOST_GPUS = 2**22
"""Upper limit of GPUs; a group's arrays have an entry per GPU."""

_MIB = 2**20
_OUTLIER = re.compile(r"outlier at (\d+) ?MiB", re.IGNORECASE)
_FROM = re.compile(r"use ?>= ?(\d+) ?MiB", re.IGNORECASE)


@dataclass(frozen=True)
class ScoredCall:
    """One call as the network model takes it: `bytes` the whole buffer, `gpus` ranks, `per_domain` of them in a scale-up domain."""

    cluster: Cluster
    comm: Comm
    bytes: float
    gpus: int
    per_domain: int


def call_of(row: CollectiveRow) -> ScoredCall | Skipped:
    """The call that `row` timed, or the reason why it cannot be rebuilt or compared."""
    if not (row.time_us and row.bytes and row.gpus and row.gpu and row.collective):
        return Skipped("time, bytes, gpus, gpu or collective not published")
    comm = COMMS.get(re.sub(r"[-_ ]|perf$", "", row.collective.lower()))
    if comm is None:
        return Skipped(f"collective {row.collective!r} is not modelled")
    if reason := _unclean(row):
        return Skipped(reason)
    if row.gpus > MOST_GPUS:
        return Skipped(f"{row.gpus} GPUs are more than a cluster has")
    nodes = row.nodes or 1
    if row.gpus % nodes:
        return Skipped(f"{row.gpus} GPUs do not spread evenly over {nodes} nodes")
    per_node = row.gpus // nodes
    place = Place(
        row.gpu,
        row.gpus_per_node or per_node,
        row.scaleup_gpus,
        row.nics_per_node,
        row.nic_gbit_s,
        row.fabric,
        nodes * (row.gpus_per_node or per_node),
        " ".join(filter(None, (row.family, row.system, row.network_text))),
    )
    cluster = machine(place)
    if isinstance(cluster, Skipped):
        return cluster
    if _ring_only(row):
        scale_up = cluster.node.scale_up.model_copy(update={"in_switch_reduction": False})
        cluster = cluster.model_copy(update={"node": cluster.node.model_copy(update={"scale_up": scale_up})})
    servers = max(1, cluster.domain // cluster.node.gpus)
    return ScoredCall(cluster, comm, float(row.bytes), row.gpus, min(row.gpus, per_node * servers))


def score_collective(row: CollectiveRow, fitted: bool = False) -> Score:
    """The row's time in microseconds beside the predicted one."""
    seen = row.verified != "memory"
    complete = row.clean != "n"
    call = call_of(row)
    if isinstance(call, Skipped):
        return Score(row.id, row.family, "time_us", row.time_us, skipped=call.reason, source_seen=seen, fitted=fitted)
    try:
        estimate = collective(call.cluster, call.comm, call.bytes, flat_group(call.cluster, call.gpus, call.per_domain))
    except WindtunnelError as error:
        return Score(row.id, row.family, "time_us", row.time_us, skipped=str(error), source_seen=seen, fitted=fitted)
    label = f"{row.collective} of {row.bytes} B on {row.gpus} {row.gpu} ({row.fabric})"
    return Score(
        row.id,
        row.family,
        "time_us",
        row.time_us,
        1e6 * estimate.seconds,
        source_seen=seen,
        fitted=fitted,
        complete=complete,
        claimed_pct=100.0 * estimate.relative_error,
        job=label,
    )


def _unclean(row: CollectiveRow) -> str | None:
    """The reason why the row cannot be compared: a warm-up size, or a sweep marked as disturbed."""
    if row.clean != "n":
        return None
    quality = row.quality or "marked as not clean"
    if row.bytes is not None and row.bytes < WARM_UP_BYTES:
        return f"not clean: sizes below {WARM_UP_BYTES} B hold a warm-up artefact"
    size = (row.bytes or 0) / _MIB
    if (outlier := _OUTLIER.search(quality)) and size != float(outlier.group(1)):
        return None
    if (start := _FROM.search(quality)) and size >= float(start.group(1)):
        return None
    return f"not clean: {quality}"


def _ring_only(row: CollectiveRow) -> bool:
    """Whether the run kept NCCL from reducing in the switch."""
    words = (row.algo_proto or "").lower()
    return "nvls off" in words or words == "ring"
