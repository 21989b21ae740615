"""SimAI's and AICB's files: workloads, topologies, calls of a run, settings and results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Content, Context, Reading


def recognises(head: Head) -> bool:
    """Whether a file is one of theirs, by its first lines."""
    from windtunnel.formats.simulators.simai import (
        aicb,
        settings,
        topology,
        workload,
    )  # here: `windtunnel simai` needs only the workload

    lines = head.lines
    return workload.is_workload(lines) or topology.is_topology(lines) or aicb.is_csv(lines) or settings.kind_of(lines) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """One file. SpecError where several are given: each stands for itself."""
    from windtunnel.formats.simulators.simai import aicb, settings, topology, workload

    if len(files) > 1:
        raise SpecError("FILE", f"{len(files)} files", "one file of SimAI at a time")
    path = files[0]
    lines = head_of(path).lines
    if topology.is_topology(lines):
        return _topology(path)
    if aicb.is_csv(lines):
        return aicb.read_csv(path)
    kind = None if workload.is_workload(lines) else settings.kind_of(lines)
    return _workload(path) if kind is None else settings.read(path, kind)


def _workload(path: Path) -> Reading:
    from windtunnel.formats.simulators.simai import workload
    from windtunnel.formats.simulators.simai.graph import graph_of, left_out

    source = workload.read_workload(path)
    missing = [key for key in ("ep", "pp", "vpp", "ga", "gpus") if key not in source.keys]
    assumed = ["times are ns; ranks lie in Megatron's order: tp, then dp, then pp"]
    if missing:
        assumed.append(f"{', '.join(missing)}: not in the first line; degrees are 1, and GPUs as many as the degrees need")
    built = ("a graph of one rank's training step; `windtunnel simai` gives SimAI's own totals",)
    return Reading("SimAI workload", Content.GRAPH, graph_of(source), workload.facts_of(source), built, left_out(source),
                   tuple(assumed), source.broken)  # fmt: skip


def _topology(path: Path) -> Reading:
    from windtunnel.formats.simulators.simai import topology

    source = topology.read_topology(path)
    cluster, assumed = topology.cluster_of(source, str(path))
    built = ("a cluster: links of a GPU, nodes below a leaf, its up links",)
    return Reading("SimAI topology", Content.CLUSTER, cluster, topology.facts_of(source), built, (), assumed, source.broken)
