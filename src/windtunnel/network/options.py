"""What `collective` takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import shared_options as shared
from windtunnel.base.comm import Comm
from windtunnel.base.fidelity import CLOSED, FIDELITIES
from windtunnel.base.options import option
from windtunnel.network.algorithm import ALGORITHMS

if TYPE_CHECKING:
    from windtunnel.network.lanes.send_files import Sends
    from windtunnel.network.simulate.collective import Watch
    from windtunnel.spec.machine.cluster import Cluster

OPS = {comm.name.lower(): comm for comm in Comm if comm is not Comm.NONE}
"""Name of each call -> the call."""
_SIZES = "Sizes as nccl-tests takes them (K, M, G are binary), or a list with commas."
_SHOW = "List the transfers of the first size, step by step; --csv writes them as --algorithm reads them."


@dataclass(frozen=True)
class CollectiveOptions:
    """What the table of a call is asked with."""

    cluster: str | Cluster = option("Catalogue name or file.", short="-c", metavar="CLUSTER")
    op: Comm | str = option(", ".join(OPS), "all_reduce", choices=tuple(OPS))
    gpus: int = option("Ranks of the call.", 8, short="-n", least=2)
    sizes: str | float | Iterable[float] = option(
        _SIZES, "8:8G", word="--bytes", short="-b", metavar="MIN:MAX[:FACTOR]", joined=True
    )
    _: KW_ONLY
    network: str = option(f"Fidelity: {', '.join(FIDELITIES)}.", CLOSED, choices=tuple(FIDELITIES))
    algorithm: str | Path | Sends | None = option(
        f"{', '.join(ALGORITHMS)}, or sends in a .csv, .json, .toml or .xml (MSCCL).", None, short="-a", metavar="NAME|FILE"
    )
    settings: Mapping[str, str | int] | Sequence[str] | None = option(
        "NCCL variable, such as NCCL_ALGO=Ring; `help` lists them.", None, word="--env", short="-e", metavar="NAME=VALUE"
    )
    dims: Sequence[int] = option("Ranks of each dimension, innermost first: 8,16 (hierarchical).", (), commas=True, reads="dims")
    per_node: int | None = option("Ranks in each node; default: as many as fit.", None, least=1)
    seed: int = option("Seed of the hashes that choose paths.", 1, least=0)
    skip: bool = option("packet: fast-forward steady states, and say what was skipped.", False)
    threads: int = shared.threads()
    mtu: int | None = option("Bytes of a packet; default: depends on the size.", None, least=256, most=65535)
    progress: Callable[[float], bool] | None = option(
        "Called with the share that is done; where it returns true, the rows so far are returned.", None, shown=False
    )
    watch: Watch | None = option(
        "Called with each row of an engine and its `Traffic`: hot links, and the ranks that fill them.", None, shown=False
    )
    loads: bool = option("`Traffic` has the links over time too.", False, shown=False)


@dataclass(frozen=True)
class CollectiveCommandOptions(CollectiveOptions):
    """The same for the command line, which changes the cluster, lists transfers and reads logs."""

    show: bool = option(_SHOW, False, word="--show-transfers")
    fault: Sequence[str] = shared.fault()
    sets: Sequence[str] = shared.sets()
    measured: Sequence[str] = option("A log of nccl-tests of this call, to stand beside it; repeatable.", (), metavar="FILE")
