"""The public functions `windtunnel.collective` and `sweep`; they take the names of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.fidelity import CLOSED, check_fidelity, check_threads
from windtunnel.base.options import asks
from windtunnel.network.closed.collective import sweep as closed_sweep
from windtunnel.network.options import OPS, CollectiveOptions, sizes_of
from windtunnel.spec import load_cluster
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

if TYPE_CHECKING:
    from windtunnel.network.lanes.send_files import Sends
    from windtunnel.network.simulate.collective import Watch

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


def algorithm_of(name: str | None) -> str | None:
    """The name in `ALGORITHMS` of an algorithm in any spelling; None for None. Raises UnknownName."""
    if name is None:
        return None
    from windtunnel.network.algorithm import ALGORITHMS

    by_plain_name = {key.replace("_", ""): key for key in ALGORITHMS}
    plain = name.strip().lower().replace("-", "").replace("_", "")
    if plain not in by_plain_name:
        raise UnknownName("--algorithm", name, list(ALGORITHMS))
    return by_plain_name[plain]


@asks(CollectiveOptions)
def collective(asked: CollectiveOptions) -> list[dict[str, object]]:
    """The table that nccl-tests prints for a call on `gpus` ranks of `cluster` (a name, a file or as read): a row for each size.

    A row has `size` (bytes), `time_us`, `algbw_GBs`, `busbw_GBs`, `algorithm`, `protocol`, `channels`, and what an engine counts.
    `op` in any spelling; `sizes`: bytes, or as nccl-tests takes them: "8:8G", "1M:1G:4" (K, M, G are binary), "1M,16M".
    `algorithm`: a name, or a file of sends, run over links. `settings`: NCCL's variables. `seed`, `mtu`, `skip` and `threads` are
    options of the engines. Raises SpecError, UnknownName or FileError.
    """
    sizes, algorithm = asked.sizes, asked.algorithm
    machine = load_cluster(asked.cluster) if isinstance(asked.cluster, str) else asked.cluster
    check_threads(asked.threads)
    check_ranks(machine, asked.per_node)
    chosen = sizes_of(sizes) if isinstance(sizes, str) else [sizes] if isinstance(sizes, (int, float)) else list(sizes)
    named = str(algorithm) if isinstance(algorithm, (str, Path)) else None
    sends = None if algorithm is None else sends_of(algorithm)
    check_sends(sends, chosen, sizes)
    return sweep(
        machine,
        asked.op,
        asked.gpus,
        chosen,
        network=check_fidelity(asked.network),
        settings=variables_of(asked.settings),
        per_node=asked.per_node,
        algorithm=None if sends is not None else algorithm_of(named),
        sends=sends,
        dims=asked.dims,
        seed=asked.seed,
        mtu=asked.mtu,
        skip=asked.skip,
        threads=asked.threads,
        progress=asked.progress,
        watch=asked.watch,
        loads=asked.loads,
    )


def variables_of(settings: Mapping[str, str | int] | Sequence[str] | None) -> dict[str, str | int]:
    """NCCL variables, as a table or as NAME=VALUE; SpecError on anything else."""
    if isinstance(settings, Mapping):
        return dict(settings)
    variables: dict[str, str | int] = {}
    for pair in settings or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SpecError("--env", pair, "NAME=VALUE, such as NCCL_ALGO=Ring")
        variables[name.strip()] = value.strip()
    return variables


def check_ranks(machine: Cluster, per_node: int | None) -> None:
    """SpecError for more ranks in each node than it has GPUs."""
    if per_node is not None and per_node > machine.node.domain:
        raise SpecError("--per-node", per_node, f"at most {machine.node.domain}, as many GPUs as a node of {machine.id} joins")


def check_sends(sends: Sends | None, chosen: Sequence[float], sizes: object) -> None:
    """SpecError for several sizes with sends that do not scale."""
    if sends is not None and sends.size is None and len(chosen) > 1:
        raise SpecError("--bytes", sizes, "one size", "The file does not say what size it is for, so it does not scale.")


def sends_of(algorithm: str | Path | Sends) -> Sends | None:
    """The sends that an algorithm is or whose file it names; None for a name."""
    if not isinstance(algorithm, (str, Path)):
        return algorithm
    if not Path(algorithm).suffix:
        return None
    from windtunnel.network.lanes.send_files import read_sends

    return read_sends(str(algorithm))


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
    threads: int = 1,
    progress: Callable[[float], bool] | None = None,
    watch: Watch | None = None,
    loads: bool = False,
) -> list[dict[str, object]]:  # long: one argument a line
    """The table of nccl-tests, a row per size in bytes: `size`, `time_us`, `algbw_GBs`, `busbw_GBs`, `algorithm`, `protocol`, …

    `op` as `windtunnel collective --op` takes it; `network` closed, flow or packet; `settings` NCCL's variables; `per_node` ranks
    in each domain (left out: as many as fit). The closed form prices NCCL's choice by formula; an `algorithm`, a `protocol` or
    `sends` from a file are lowered to lanes. `seed`, `mtu`, `skip` and `threads` are options of the engines. `progress` is called
    with the finished share; if it returns True, the sweep stops and returns the rows so far. `watch` and `loads`: see `collective`.
    Raises SpecError and UnknownName.
    """
    call = OPS[op_of(op)] if isinstance(op, str) else op
    _check_fabric(cluster, network, {"--per-node": per_node, "--algorithm": algorithm or protocol or sends, "--dims": dims})
    if network == CLOSED and algorithm is None and protocol is None and sends is None:
        return closed_sweep(cluster, call, gpus, sizes, per_node=per_node, settings=settings)
    if cluster.fabric.is_grid:
        from windtunnel.network.simulate.grid_sweep import EngineOptions, grid_sweep

        options = EngineOptions(mtu, threads, skip, loads)
        return grid_sweep(cluster, call, gpus, sizes, network=network, options=options, progress=progress, watch=watch)
    from windtunnel.network.simulate.collective import engine_sweep

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
        threads=threads,
        progress=progress,
        watch=watch,
        loads=loads,
    )


def sweep_algorithms(
    cluster: Cluster,
    op: Comm | str,
    gpus: int,
    sizes: Iterable[float],
    *,
    per_node: int | None = None,
    settings: Mapping[str, str | int] | None = None,
) -> dict[str, list[dict[str, object]]]:
    """Each algorithm that NCCL can take for a call -> the rows of `sweep` in closed form with `NCCL_ALGO` naming it alone, at the
    sizes where it does take it. Empty for calls without a choice, such as an all-to-all, and on machines with dimensions.
    """
    from windtunnel.network.algorithm import CHOSEN, in_order_of_nccl

    call, chosen = OPS[op_of(op)] if isinstance(op, str) else op, list(sizes)
    found: dict[str, list[dict[str, object]]] = {}
    if cluster.fabric.is_grid:
        return found
    for algorithm in in_order_of_nccl(CHOSEN):
        alone = {**(settings or {}), "NCCL_ALGO": algorithm}
        rows = closed_sweep(cluster, call, gpus, chosen, per_node=per_node, settings=alone)
        if taken := [row for row in rows if row["algorithm"] == algorithm]:
            found[algorithm] = taken
    return found


def _check_fabric(cluster: Cluster, network: str, not_on_grid: dict[str, object]) -> None:
    """SpecError for faults that the fidelity cannot show, and on a machine joined along dimensions for options that it has not."""
    if cluster.fabric.faults:
        from windtunnel.network.simulate.fabric_faults import check_faults

        check_faults(cluster.fabric, network)
    if cluster.fabric.is_grid:
        from windtunnel.network.simulate.grid_sweep import refuse_on_grid

        refuse_on_grid(not_on_grid)
