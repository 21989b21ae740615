"""The public functions `windtunnel.sweep` and `windtunnel.flows`; they take the names of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from windtunnel.base.errors import UnknownName
from windtunnel.base.fidelity import CLOSED
from windtunnel.network.closed.collective import sweep as closed_sweep
from windtunnel.network.fabrics import parse_fabric
from windtunnel.network.flows.flow_list import load_flows
from windtunnel.network.flows.run import FlowOptions, run_flows
from windtunnel.network.flows.run import FlowsResult as FlowsResult
from windtunnel.network.lanes.send_files import Sends
from windtunnel.network.simulate.collective import engine_sweep
from windtunnel.network.simulate.packet_settings import PacketSettings
from windtunnel.spec.machine.cluster import Cluster
from windtunnel.workload.ops import Comm

OPS = {comm.name.lower(): comm for comm in Comm if comm is not Comm.NONE}
"""Name of each call -> the call."""
ALIASES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
           "sendrecv": "send_recv", "all2all": "all_to_all"}  # fmt: skip
"""Other names that nccl-tests and people use."""


def op_of(name: str, path: str = "op") -> str:
    """The name in `OPS` of a call in any spelling, such as `AllReduce` or `all-reduce`. Raises UnknownName at `path`."""
    plain = name.strip().lower().replace("-", "_")
    plain = ALIASES.get(plain, plain)
    if plain not in OPS:
        raise UnknownName(path, name, list(OPS))
    return plain


def sweep(
    cluster: Cluster,
    op: Comm | str,
    gpus: int,
    sizes: Iterable[float],
    *,
    network: str = CLOSED,
    settings: Mapping[str, str | int] | None = None,
    per_node: int | None = None,
    algorithm: str | None = None,
    protocol: str | None = None,
    sends: Sends | None = None,
    dims: Sequence[int] = (),
    seed: int = 1,
    mtu: int | None = None,
    skip: bool = False,
    progress: Callable[[float], bool] | None = None,
) -> list[dict[str, object]]:
    """The table of nccl-tests, a row per size in bytes: `size`, `time_us`, `algbw_GBs`, `busbw_GBs`, `algorithm`, `protocol`, …

    `op` as `windtunnel collective --op` takes it; `network` closed, flow or packet; `settings` NCCL's variables; `per_node` ranks
    in each domain (left out: as many as fit). The closed form prices NCCL's choice by formula; an `algorithm`, a `protocol` or
    `sends` from a file are lowered to lanes. `seed`, `mtu` and `skip` are options of the engines. `progress` is called with the
    finished share; if it returns True, the sweep stops and returns the rows so far. Raises SpecError and UnknownName.
    """
    call = OPS[op_of(op)] if isinstance(op, str) else op
    if network == CLOSED and algorithm is None and protocol is None and sends is None:
        return closed_sweep(cluster, call, gpus, sizes, per_node=per_node, settings=settings)
    return engine_sweep(
        cluster,
        call,
        gpus,
        sizes,
        network=network,
        algorithm=algorithm,
        protocol=protocol,
        sends=sends,
        settings=settings,
        per_node=per_node,
        seed=seed,
        dims=dims,
        mtu=mtu,
        skip=skip,
        progress=progress,
    )


def flows(
    fabric: str,
    flows: str,
    network: str = CLOSED,
    *,
    routing: str = "ecmp",
    nic: str = "nearest",
    cc: str = "dcqcn",
    seed: int = 1,
    threads: int = 1,
) -> FlowsResult:
    """Plain flows over a fabric; both as `windtunnel flows` takes them: `fat_tree:k=8,link=400Gb/s`, `permutation:bytes=10MiB`.

    The result has `fct` (seconds until each sender has its last ACK), `summary()`, `stats`, `hot_links()` and `collisions`. Raises
    SpecError, UnknownName and FileError.
    """
    graph = parse_fabric(fabric)
    options = FlowOptions(network, routing, nic, seed, until="acked", packet=PacketSettings(cc=cc, threads=threads))
    return run_flows(graph, load_flows(flows, graph.endpoints), options)
