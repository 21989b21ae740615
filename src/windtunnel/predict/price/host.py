"""Host seconds of every row: what the framework spends to launch it, by mode and by module."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.workload import Kind, Workload
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.ops import Phase

MODULES = (Module.ATTENTION, Module.MLP, Module.MOE)
"""Sub-modules whose linear layers are a framework's modules; the head's product is a plain one."""


def host_seconds(workload: Workload) -> npt.NDArray[np.float64]:
    """Of each row: its launches, what its module costs beside them, and the way back from a wait.

    A CUDA graph of `runtime.graph_scope` costs one launch where it begins, whatever it holds.
    """
    ops, host = workload.ops, workload.job.runtime.host
    cost = ops.launches * host.launch + (ops.kind == Kind.COMM) * host.collective
    if host.linear or host.expert or host.mixture:
        cost += _modules(workload)
    if ops.graphed.any():
        begins = ops.graphed & ~np.append(False, ops.graphed[:-1])
        for block in workload.blocks:
            for rows in (block.forward, block.backward):
                if len(rows):
                    begins[rows.start] = ops.graphed[rows.start]
        cost = np.where(ops.graphed, begins * host.graph, cost)
    if host.wait:
        cost[1:] += np.where(ops.sync[:-1], host.wait, 0.0)
    return np.asarray(cost, np.float64)


def _modules(workload: Workload) -> npt.NDArray[np.float64]:
    """What linear layers and mixtures cost beside their launches. A product in chunks is one layer's; a weight gradient is booked
    with the input's, a mixture with its router, whose graph then spares it."""
    ops, host = workload.ops, workload.job.runtime.host
    calls = np.isin(ops.phase, (Phase.FORWARD, Phase.RECOMPUTE, Phase.DGRAD))
    linear = np.isin(ops.module, MODULES) & calls
    product = linear & (ops.kind == Kind.GEMM)
    grouped = linear & (ops.kind == Kind.GROUPED_GEMM)
    router = (ops.role == Role.ROUTER) & product
    cost = (product & ~ops.further | grouped) * host.linear + grouped * ops.launches * host.expert + router * host.mixture
    return np.asarray(cost, np.float64)
