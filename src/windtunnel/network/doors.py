"""The network room's two questions as one call each, with names instead of nouns: `windtunnel.sweep` and `windtunnel.flows`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windtunnel.base.errors import UnknownName
from windtunnel.network.collective import sweep as closed_sweep
from windtunnel.network.fabrics import parse_fabric
from windtunnel.network.flow_list import load_flows
from windtunnel.network.flows import FlowOptions, FlowsResult, run_flows
from windtunnel.network.packet_flows import PacketSettings
from windtunnel.network.run import engine_sweep
from windtunnel.spec.cluster import Cluster
from windtunnel.workload.ops import Comm

OPS = {comm.name.lower(): comm for comm in Comm if comm is not Comm.NONE}
"""Name of each call -> the call."""


def sweep(cluster: Cluster, op: Comm | str, gpus: int, sizes: Iterable[float], *, network: str = "closed",
          settings: Mapping[str, str | int] | None = None, **more: object) -> list[dict[str, object]]:
    """The table of nccl-tests, a row per size in bytes: `size`, `time_us`, `algbw_GBs`, `busbw_GBs`, `algorithm`, `protocol`, …

    `op` as `windtunnel collective --op` takes it; `network` closed, flow or packet; `settings` NCCL's variables; `more` as
    `network.run.engine_sweep` takes it (algorithm, seed, mtu, skip, …). Raises SpecError and UnknownName.
    """
    if isinstance(op, str) and op not in OPS:
        raise UnknownName("op", op, list(OPS))
    call = OPS[op] if isinstance(op, str) else op
    if network == "closed" and not more:
        return closed_sweep(cluster, call, gpus, sizes, settings=settings)
    return engine_sweep(cluster, call, gpus, sizes, network=network, settings=settings, **more)  # type: ignore[arg-type]


def flows(fabric: str, flows: str, network: str = "closed", *, routing: str = "ecmp", nic: str = "nearest", cc: str = "dcqcn",
          seed: int = 1, threads: int = 1) -> FlowsResult:
    """Plain flows over a fabric; both as `windtunnel flows` takes them: `fat_tree:k=8,link=400Gb/s`, `permutation:bytes=10MiB`.

    `fct` of the result are seconds until each sender has its last ACK; `summary()`, `stats`, `hot_links()`, `collisions`. Raises
    SpecError, UnknownName and FileError.
    """
    graph = parse_fabric(fabric)
    options = FlowOptions(network, routing, nic, seed, until="acked", packet=PacketSettings(cc=cc, threads=threads))
    return run_flows(graph, load_flows(flows, graph.endpoints), options)
