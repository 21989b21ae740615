"""Seconds of computations and of copies to other memories, alone."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.errors import SpecError
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.replay.options import ReplayOptions
from windtunnel.spec.machine.cluster import GPU, Cluster
from windtunnel.spec.machine.host import Place

PRODUCTS = ("gemm", "matmul", "::mm", "::bmm", "addmm", "linear", "conv", "attention", "flash", "cutlass", "cublas", "einsum")
"""Parts of the names of computations that FLOPs bound, where neither FLOPs nor bytes are stated."""


def durations(graph: TraceGraph, cluster: Cluster, options: ReplayOptions) -> tuple[Floats, list[str]]:
    """Seconds [N] of all tasks that meet nobody, and what was assumed for them."""
    notes: list[str] = []
    seconds = np.where(np.isfinite(graph.seconds), graph.seconds, 0.0)
    device = (graph.kind == TaskKind.COMPUTE) & ~graph.on_host
    unknown = device & ~np.isfinite(graph.seconds)
    stated = (np.nan_to_num(graph.flops) > 0) | (np.nan_to_num(graph.bytes) > 0)
    scaled = device & np.isfinite(graph.seconds)
    if options.compute == "kernels":
        from windtunnel.replay.kernels import kernel_seconds

        own, notes = kernel_seconds(graph, cluster.node.gpu, device)
        found = np.isfinite(own)
        seconds[found] = own[found]
        scaled, unknown = scaled & ~found, unknown & ~found
    if options.compute == "roofline":
        scaled &= ~stated
        unknown = unknown | (device & stated)
    if unknown.any():
        seconds[unknown] = roofline(graph, cluster.node.gpu, options.precision)[unknown]
        if options.compute != "roofline":
            notes.append(f"{int(unknown.sum())} computations without a time take what their FLOPs and bytes need at the GPU's peak")
    if options.source is not None:
        seconds[scaled] = seconds[scaled] * _factor(graph, options.source, cluster.node.gpu, options.precision)[scaled]
    memory = (graph.kind == TaskKind.LOAD) | (graph.kind == TaskKind.STORE)
    open_ = memory & ~np.isfinite(graph.seconds)
    if open_.any():
        seconds[open_] = _copies(graph, cluster)[open_]
        notes.append(f"{int(open_.sum())} memory nodes run to the pool, the expansion or the host memory of the cluster")
    seconds[graph.kind == TaskKind.MARK] = 0.0
    return seconds, notes


def roofline(graph: TraceGraph, gpu: GPU, precision: str) -> Floats:
    """The longer of FLOPs over the peak and bytes over the memory's bandwidth [N]."""
    flops, moved = np.nan_to_num(graph.flops), np.nan_to_num(graph.bytes)
    return np.maximum(flops / peak(gpu, precision), moved / gpu.memory_bandwidth)


def peak(gpu: GPU, precision: str) -> float:
    """Peak FLOP/s of a number format. SpecError for one that the GPU does not state."""
    rates: dict[str, float] = {str(name): float(rate) for name, rate in gpu.peak.items()}
    if precision not in rates:
        raise SpecError("--precision", precision, ", ".join(rates))
    return rates[precision]


def _factor(graph: TraceGraph, source: GPU, target: GPU, precision: str) -> Floats:
    """Time there over time here [N]: by FLOP rate where FLOPs bind on the source, else by memory bandwidth."""
    by_flops = peak(source, precision) / peak(target, precision)
    by_bytes = source.memory_bandwidth / target.memory_bandwidth
    return np.where(_bound_by_flops(graph, source, precision), by_flops, by_bytes)


def _bound_by_flops(graph: TraceGraph, gpu: GPU, precision: str) -> Bools:
    flops, moved = np.nan_to_num(graph.flops), np.nan_to_num(graph.bytes)
    named = np.array([any(part in name.lower() for part in PRODUCTS) for name in graph.names] or [False])[graph.name]
    counted = (flops > 0) | (moved > 0)
    return np.asarray(np.where(counted, flops / peak(gpu, precision) >= moved / gpu.memory_bandwidth, named), np.bool_)


def _copies(graph: TraceGraph, cluster: Cluster) -> Floats:
    """Seconds [N] to and from the memory that the cluster has beyond its GPUs': the pool, the node's expansion, or the host's."""
    from windtunnel.memory.host_copies import legs

    place: Place = "pool" if cluster.memory_pool is not None else "expansion" if cluster.node.expansion is not None else "host"
    size = np.nan_to_num(graph.bytes)
    out = sum(leg.latency + size / leg.rate for leg in legs(cluster, place, out=True))
    back = sum(leg.latency + size / leg.rate for leg in legs(cluster, place, out=False))
    return np.where(size > 0, np.where(graph.kind == TaskKind.STORE, out, back), 0.0)
