"""One collective on a machine whose accelerators are joined along dimensions: closed form, fluid or packet by packet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, FLOW
from windtunnel.engine import flow
from windtunnel.engine.flow import Demands, Variables
from windtunnel.engine.loads import LinkLoads
from windtunnel.engine.packet import run_packets
from windtunnel.network.closed.collective import bus_factor
from windtunnel.network.closed.grid import GRID_ERROR, describe_spans, grid_call
from windtunnel.network.grids.machine import Axes
from windtunnel.network.groups.shape import flat_group
from windtunnel.network.simulate.axis_calls import Machine, demand_of, machine, plan_of
from windtunnel.network.simulate.collective import Watch, count_packets, find_sent, name_pairs
from windtunnel.network.simulate.grid_calls import AxisCall
from windtunnel.network.simulate.packet_settings import small_buffers_named
from windtunnel.network.simulate.packets import packet_size, settle_delays
from windtunnel.network.simulate.traffic import Traffic, traffic
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm


@dataclass(frozen=True)
class EngineOptions:
    """How an engine runs: `mtu` bytes of a packet (None: `packet_size`), `threads` and `skip` of packets, `loads` over time."""

    mtu: int | None = None
    threads: int = 1
    skip: bool = False
    loads: bool = False


@dataclass(frozen=True)
class GridRun:
    """Seconds of a call over an engine, and what it did to the links; `counts` of packets, as a row says them."""

    seconds: float
    plan: AxisCall
    link_bytes: Floats
    loads: LinkLoads | None = None
    counts: Mapping[str, object] = field(default_factory=dict)


def run_on_grid(on: Machine, plan: AxisCall, network: str, options: EngineOptions = EngineOptions()) -> GridRun:  # noqa: B008 frozen
    """A call alone on its machine, over flows or packets."""
    if network == FLOW:
        load = demand_of(on, plan)
        used = np.flatnonzero(load)
        demands = Demands(np.array([0, len(used)], np.int64), used.astype(np.int32), load[used])
        one = np.ones(1)
        moved = max(plan.seconds - plan.latency, 1e-12)
        variables = Variables(begin=one * plan.wait, size=one, bound=one / moved, latency=one * (plan.latency - plan.wait))
        fluid = flow.run(on.graph.link_rate * on.graph.link_up, demands, variables, loads=options.loads)
        return GridRun(fluid.last, plan, fluid.use.bytes, fluid.use.loads)
    size = options.mtu or packet_size(float(plan.lanes.bytes.sum()))
    lanes = settle_delays(on.graph, plan.paths, plan.lanes, size)
    tags = name_pairs(plan.lanes, on.placed.endpoint, on.graph.endpoints)[0].tolist() if options.loads else []
    packets = replace(on.packets(size), threads=options.threads, skip=options.skip, loads=options.loads, tags=tags)
    with small_buffers_named(on.graph, "cluster.fabric.buffer"):
        run = run_packets(on.graph, plan.paths, lanes, packets)
    stats = {**run.stats, "skipped_share": run.skipped_share, "skip_error_s": run.skip_error}
    moved_bytes = run.link_data.astype(np.float64)
    return GridRun(float(run.delivered.max()), plan, moved_bytes, run.loads, count_packets(stats, size))


def refuse_on_grid(asked: Mapping[str, object]) -> None:
    """SpecError for the first of these options that was given."""
    for option, value in asked.items():
        if value:
            got = value if isinstance(value, (str, int, tuple)) else "a file"
            raise SpecError(option, got, "nothing on a torus, mesh or ndim: calls run along its dimensions")


def grid_sweep(
    cluster: Cluster,
    comm: Comm,
    gpus: int,
    sizes: Iterable[float],
    *,
    network: str,
    options: EngineOptions,
    progress: Callable[[float], bool] | None = None,
    watch: Watch | None = None,
) -> list[dict[str, object]]:
    """The rows of `windtunnel.network.sweep` for the first `gpus` accelerators, or a slice with as many; `watch` as there."""
    if options.loads and options.skip:
        raise SpecError("--skip", True, "no load over time with it: skipped packets have no times")
    group = flat_group(cluster, gpus)
    if group.ranks < 2:
        raise SpecError("gpus", gpus, "at least 2")
    count = gpus if cluster.fabric.slices else None
    axes: Axes = (("tp", gpus), ("dp", group.gpus_per_node // gpus))
    on = machine(cluster, cluster.gpus if count is None else count, axes=axes)
    ranks: Int64s = np.arange(gpus)[None, :]
    call = grid_call(cluster, comm, group)
    rows: list[dict[str, object]] = []
    todo = list(sizes)
    for size in todo:
        plan = plan_of(on, comm, size, ranks, group)
        ran = GridRun(plan.seconds, plan, np.zeros(0)) if network == CLOSED else run_on_grid(on, plan, network, options)
        rows.append(
            {
                "size": size,
                "time_us": ran.seconds * 1e6,
                "algbw_GBs": size / ran.seconds * 1e-9,
                "busbw_GBs": size * bus_factor(comm, gpus) / ran.seconds * 1e-9,
                "algorithm": call.algorithm,
                "protocol": call.machine.medium,
                "channels": 0,
                "dimensions": describe_spans(call.machine, call.grid, comm),
                "lanes": len(plan.lanes),
                **ran.counts,
                "provenance": "assumed",
                "relative_error": GRID_ERROR,
            }
        )
        if watch is not None and len(ran.link_bytes):
            watch(rows[-1], _show_links(on, ran, network))
        if progress is not None and progress(len(rows) / len(todo)):
            break
    return rows


def _show_links(on: Machine, ran: GridRun, network: str) -> Traffic:
    """What a call did to the links, and which ranks filled them."""
    pair, names = name_pairs(ran.plan.lanes, on.placed.endpoint, on.graph.endpoints)
    return traffic(
        on.graph, network, ran.link_bytes, ran.seconds, names=names, loads=ran.loads,
        sent=lambda links: find_sent(ran.plan.lanes, ran.plan.paths, pair, links),
    )  # fmt: skip


__all__ = ["EngineOptions", "GridRun", "grid_sweep", "refuse_on_grid", "run_on_grid"]
