"""A machine as ASTRA-sim's inputs: system.json, network.yml and remote_memory.json; of a job comm_group.json too. The workload is
`export chakra`."""

from __future__ import annotations

import json
from dataclasses import replace

from windtunnel.base.errors import SpecError
from windtunnel.exports.exporters import Written
from windtunnel.network.groups.shape import members
from windtunnel.spec import Cluster, Job
from windtunnel.workload import Axis

ALGORITHMS = ("ring", "direct", "halvingDoubling")
GIB = 2.0**30
AXES = (Axis.TP, Axis.CP, Axis.EP, Axis.DP, Axis.SHARD, Axis.REPLICA)


def export(job: Job, options: dict[str, str]) -> Written:
    """Options as of `export_cluster`."""
    of_machine = export_cluster(job.cluster, options, job.runtime.precision)
    groups = json.dumps(_groups(job), separators=(",", ":")) + "\n"
    return replace(of_machine, files={**of_machine.files, "comm_group.json": groups})


def export_cluster(cluster: Cluster, options: dict[str, str], precision: str = "bf16") -> Written:
    """`algorithm`: ring (default), direct or halvingDoubling for every call; `splits`: chunks of a collective (4). `precision`:
    whose peak rate stands in system.json."""
    for name in options:
        if name not in ("algorithm", "splits"):
            raise SpecError("--option", name, "algorithm=…, splits=…")
    algorithm, splits = options.get("algorithm", ALGORITHMS[0]), options.get("splits", "4")
    if algorithm not in ALGORITHMS:
        raise SpecError("--option algorithm", algorithm, ", ".join(ALGORITHMS))
    if not splits.isdigit() or not 1 <= int(splits[:9]) <= 4096:
        raise SpecError("--option splits", splits, "a whole number from 1 to 4096")
    node = cluster.node
    inner = min(cluster.gpus, cluster.domain)
    outer = -(-cluster.gpus // inner)
    if cluster.gpus < 2 or (outer > 1 and cluster.gpus % inner):
        raise SpecError("cluster.gpus", cluster.gpus, f"2 or more, and whole domains of {inner}")
    counts, rates, delays = [inner], [node.scale_up.bandwidth / GIB], [1000.0 * 0.5]
    if outer > 1:
        rate = node.nic.count * node.nic.bandwidth / node.gpus if node.nic is not None else 0.0
        counts, rates = ([inner, outer], [*rates, rate / GIB]) if inner > 1 else ([outer], [rate / GIB])
        delays = [*delays, cluster.fabric.hop_latency * 1e9] if inner > 1 else [cluster.fabric.hop_latency * 1e9]
    dims = len(counts)
    peak = cluster.gpu.peak.get(precision, max(cluster.gpu.peak.values()))
    system = {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits":
        int(splits),
        **{f"{call}-implementation": [algorithm] * dims for call in ("all-reduce", "all-gather", "reduce-scatter")},
        "all-to-all-implementation": ["direct" if algorithm == "halvingDoubling" else algorithm] * dims,
        "collective-optimization": "localBWAware", "local-mem-bw": cluster.gpu.memory_bandwidth / 1e9, "peak-perf": peak / 1e12,
        "roofline-enabled": 0,
    }  # fmt: skip
    network = "".join(
        f"{key}: [ {', '.join(values)} ]\n"
        for key, values in (
            ("topology", ["Switch"] * dims),
            ("npus_count", [str(one) for one in counts]),
            ("bandwidth", [repr(one) for one in rates]),
            ("latency", [repr(float(one)) for one in delays]),
        )
    )
    files: dict[str, str | bytes] = {
        "system.json": json.dumps(system, indent=2) + "\n",
        "network.yml": network,
        "remote_memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
    }
    assumed = (
        "network.yml counts GB/s as 2^30 B/s, which is how ASTRA-sim reads them; local-mem-bw and peak-perf are decimal",
        "every dimension is a switch; 500 ns inside a domain",
    )
    left = (
        "protocols, channels and NVLS of the library",
        "levels of switches above the nodes, and their contention",
        "memory beyond the GPUs'",
    )
    return Written(files, left, assumed)


def _groups(job: Job) -> dict[str, list[int]]:
    """Groups of the plan's axes, numbered from 1."""
    out: dict[tuple[int, ...], int] = {}
    for axis in AXES:
        for row in members(job, axis).tolist():
            if 1 < len(set(row)) < job.cluster.gpus:
                out.setdefault(tuple(sorted(set(row))), len(out) + 1)
    return {str(number): list(row) for row, number in out.items()}
