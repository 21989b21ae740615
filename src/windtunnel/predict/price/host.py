"""Host seconds of every row: the framework's cost to launch it, by mode and by module."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from windtunnel.network import Group
from windtunnel.spec import Runtime
from windtunnel.workload import Axis, Kind, Workload
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.ops import Phase

MODULES = (Module.ATTENTION, Module.MLP, Module.MOE)
"""Sub-modules whose linear layers are framework modules; the head's product is a plain function."""


def host_seconds(workload: Workload, group: Callable[[Axis], Group]) -> npt.NDArray[np.float64]:
    """Host seconds of each row: its launches, the overhead of its module, and the return from a wait. `group`: the ranks behind
    an axis, which compare a call.

    A CUDA graph of `runtime.graph_scope` costs one launch at its first row, whatever it contains.
    """
    ops, runtime = workload.ops, workload.job.runtime
    host = runtime.host
    cost = ops.launches * host.launch + (ops.kind == Kind.COMM) * host.collective
    if runtime.collective_checks:
        cost += _checks(workload, group)
    if host.linear or host.expert or host.mixture or host.expert_of_modules or host.mixture_of_modules:
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


def _checks(workload: Workload, group: Callable[[Axis], Group]) -> npt.NDArray[np.float64]:
    """Host seconds of each call's check."""
    ops, job = workload.ops, workload.job
    cost = np.zeros(len(ops))
    for axis in np.unique(ops.axis[ops.kind == Kind.COMM]).tolist():
        cost[(ops.kind == Kind.COMM) & (ops.axis == axis)] = check_seconds(job.runtime, group(Axis(axis)))
    return cost


def check_seconds(runtime: Runtime, group: Group) -> float:
    """Host seconds until the ranks of a collective's group have compared it: rank 0 hears and answers all others one after the
    other and the calls' descriptions go around, so the time grows with their number (ProcessGroupWrapper.cpp of PyTorch)."""
    if not runtime.collective_checks:
        return 0.0
    return runtime.host.check * group.per_node + runtime.host.check_across * (group.ranks - group.per_node)


def _modules(workload: Workload) -> npt.NDArray[np.float64]:
    """Host overhead of linear layers and MoE layers beside their launches. Chunks of a product count as one layer. The overhead of
    a weight gradient is booked with the input gradient, that of an MoE layer in halves with its router and with its experts: of
    Megatron-Core's MoELayer of April 2026, counted on a CPU with HybridEP, route and preprocess, which a CUDA graph may contain,
    take 0.33 of 0.69 ms forward and 0.19 of 0.43 backward; dispatch, experts and combine the rest."""
    ops, runtime = workload.ops, workload.job.runtime
    host, apart = runtime.host, runtime.moe_grouped_gemm == "modules"
    mixture, expert = (host.mixture_of_modules, host.expert_of_modules) if apart else (host.mixture, host.expert)
    calls = np.isin(ops.phase, (Phase.FORWARD, Phase.RECOMPUTE, Phase.DGRAD))
    linear = np.isin(ops.module, MODULES) & calls
    product = linear & (ops.kind == Kind.GEMM)
    grouped = linear & (ops.kind == Kind.GROUPED_GEMM)
    ends = ((ops.role == Role.ROUTER) & product) | ((ops.role == Role.EXPERT_UP) & grouped)
    cost = (product & ~ops.further | grouped) * host.linear + grouped * ops.launches * expert + ends * (mixture / 2.0)
    return np.asarray(cost, np.float64)
