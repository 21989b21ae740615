"""Jobs that run on one fabric at the same time: whether they can, where each of them runs, and their steps as programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED
from windtunnel.network.fabrics.faults import CableFlap
from windtunnel.network.simulate.axis_calls import Machine
from windtunnel.network.simulate.fabric_faults import parse_any
from windtunnel.network.simulate.tenants import Tenancy, Tenant, node_ranges, settle
from windtunnel.predict.engines.shared import CallSet, machines_of
from windtunnel.predict.engines.traffic import plans
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import lower
from windtunnel.predict.runs.beside import Resident, named_apart
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec.job import Job
from windtunnel.workload import build

BESIDE = "--beside"
_OWN = ("id", "source", "notes", "draw", "nodes", "dollars", "dollars_source", "name")
"""Fields of a fabric that two jobs may state differently."""
MOST_NAMED = 8
"""Differing fields that an error lists."""
_OF_NODE = ("gpus", "scale_up", "nic", "pcie_gen", "cpu_vendor")
"""Fields of a node that its graph has."""


def check_beside(jobs: Sequence[Job], network: str, background: Sequence[str] = ()) -> None:
    """SpecError for jobs that cannot share a fabric: in closed form, with unequal ranks or flapping cables, or on fabrics or nodes
    that differ, with the field."""
    if network == CLOSED:
        option, got = (BESIDE, jobs[1].name) if len(jobs) > 1 else ("--background", background[0])
        raise SpecError(option, got, "one job by itself in closed form", "Write --network flow or --network packet.")
    first = jobs[0]
    for job in jobs:
        if job.unequal is not None:
            raise SpecError("unequal", job.name, "equal ranks in jobs that share a fabric", "Remove unequal from the job.")
        flapping = [text for text in job.cluster.fabric.faults if isinstance(parse_any(text), CableFlap)]
        if flapping:
            raise SpecError(
                "cluster.fabric.faults",
                flapping[0],
                "faults that stand all the time: steps of several jobs have no common begin",
                "Write PATTERN:down or PATTERN:slow=0.5.",
            )
    for job in jobs[1:]:
        _check_same(first, job)


def _fabric_of(job: Job) -> dict[str, Any]:
    return {name: value for name, value in job.cluster.fabric.model_dump(mode="json").items() if name not in _OWN}


def _node_of(job: Job) -> dict[str, Any]:
    return job.cluster.node.model_dump(mode="json", include=set(_OF_NODE), exclude={"nic": {"source"}, "scale_up": {"source"}})


def _check_same(first: Job, other: Job) -> None:
    """Raises SpecError at the first field in which the machines of two jobs differ, with what to write for all of them."""
    fabric, node = (_fabric_of(first), _fabric_of(other)), (_node_of(first), _node_of(other))
    unlike = [*_list_differences("cluster.fabric", *fabric), *_list_differences("cluster.node", *node)]
    if not unlike:
        return
    path, want, got = unlike[0]
    listed = " ".join(shlex.quote(f"{name}={_write_value(value)}") for name, value, _ in unlike[:MOST_NAMED])
    more = f" and {len(unlike) - MOST_NAMED} more" if len(unlike) > MOST_NAMED else ""
    allowed = f"{want!r}, as {first.name} states it: {other.name} runs on the same fabric"
    raise SpecError(path, got, allowed, f"Put both on one cluster, or write for {other.name}: {listed}{more}.")


def _write_value(value: Any) -> str:
    """A value as `--set` takes it."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _list_differences(path: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(path, value, other value) of the fields that differ."""
    found: list[tuple[str, Any, Any]] = []
    for name, value in one.items():
        other = two.get(name)
        if isinstance(value, dict) and isinstance(other, dict | None):
            found += _list_differences(f"{path}.{name}", value, other or {})
        elif value != other and name != "source":
            found.append((f"{path}.{name}", value, other))
    return found


def settle_jobs(jobs: Sequence[Job]) -> tuple[list[Job], Tenancy]:
    """The jobs, with the nodes stated on which they run; they state one number of the fabric's nodes, or none."""
    names = named_apart([job.name for job in jobs])
    stated = [job.cluster.fabric.nodes for job in jobs if job.cluster.fabric.nodes is not None]
    if len(set(stated)) > 1:
        raise SpecError("cluster.fabric.nodes", stated[1], f"{stated[0]}, as another job on this fabric states it")
    fabric = jobs[0].cluster.fabric.model_copy(update={"nodes": stated[0] if stated else None})
    tenancy = settle(
        [Tenant(name, job.cluster.model_copy(update={"fabric": fabric})) for name, job in zip(names, jobs, strict=True)]
    )
    settled = []
    for job, gpus in zip(jobs, tenancy.gpus, strict=True):
        whole = job.cluster.fabric.model_copy(update={"nodes": tenancy.nodes})
        place = job.cluster.placement if (job.cluster.placement or "").startswith("list") else where_of(job, gpus)
        settled.append(job.model_copy(update={"cluster": job.cluster.model_copy(update={"fabric": whole, "placement": place})}))
    return settled, tenancy


def where_of(job: Job, gpus: Int32s) -> str:
    """`nodes:0-3` of a job's GPUs, in the order of its ranks."""
    return node_ranges(gpus[:: job.cluster.node.gpus] // job.cluster.node.gpus)


def residents_of(jobs: Sequence[Job], tenancy: Tenancy, setting: Setting) -> list[Resident]:
    """The steps of jobs that `settle_jobs` has placed, ready to run beside each other."""
    names = named_apart([job.name for job in jobs])
    workloads = [build(job) for job in jobs]
    costs = [setting.price(workload) for workload in workloads]
    lowest = np.argsort([int(gpus.min()) for gpus in tenancy.gpus]).tolist()
    books = [costs[at].calls for at in lowest]
    _check_connections(books)
    ordered = Tenancy(tenancy.nodes, tuple(tenancy.gpus[at] for at in lowest))
    machines = dict(zip(lowest, machines_of(books, ordered, setting.seed), strict=True))
    residents = []
    for at, (name, workload) in enumerate(zip(names, workloads, strict=True)):
        live = NetworkCalls(costs[at].calls)
        lowered = lower(workload, costs[at], live)
        part = _part(name, machines[at], costs[at].calls, live)
        where, gpus = where_of(workload.job, tenancy.gpus[at]), workload.job.cluster.gpus
        residents.append(Resident(name, "job", machines[at], lowered.program, live, part, where, gpus))
    return residents


def _part(name: str, on: Machine, book: CallBook, live: NetworkCalls) -> CallSet:
    calls = list(live.calls)
    return CallSet(name, calls, plans(on, book, calls))


def _check_connections(books: Sequence[CallBook]) -> None:
    """Raises SpecError if the jobs split a connection over different numbers of flows."""
    pairs = [book.settings.qps for book in books]
    if len(set(pairs)) > 1:
        raise SpecError(
            "runtime.nccl.NCCL_IB_QPS_PER_CONNECTION",
            max(pairs),
            f"{min(pairs)} in both jobs, which share the fabric's connections",
        )
