"""What `collective` takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, FIDELITIES
from windtunnel.base.options import option
from windtunnel.network.algorithm import ALGORITHMS

if TYPE_CHECKING:
    from windtunnel.network.lanes.send_files import Sends
    from windtunnel.network.simulate.collective import Watch
    from windtunnel.spec.machine import Cluster

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


MOST_SIZES = 1000
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)(?:(i?)B)?", re.IGNORECASE)


def sizes_of(text: str) -> list[float]:
    """Bytes from `8:8G`, `1M:64M:4` or `1M,3M`; SpecError with an example otherwise."""
    form = "MIN:MAX, MIN:MAX:FACTOR or a list with commas, such as 8:8G or 1M,16M"
    if ":" not in text:
        listed = [_bytes(part, text, form) for part in text.split(",")]
        if len(listed) > MOST_SIZES:
            raise SpecError("--bytes", text, f"at most {MOST_SIZES} sizes")
        return listed
    low, high, *rest = text.split(":")
    if len(rest) > 1:
        raise SpecError("--bytes", text, form)
    try:
        factor = float(rest[0]) if rest else 2.0
    except ValueError:
        raise SpecError("--bytes", text, form) from None
    start, end = _bytes(low, text, form), _bytes(high, text, form)
    if not 1.0 < factor <= 1e12 or end < start:
        raise SpecError("--bytes", text, form, "MIN is at most MAX, FACTOR above 1.")
    sizes = [start]
    while (following := float(int(sizes[-1] * factor))) <= end:
        if following <= sizes[-1] or len(sizes) >= MOST_SIZES:
            raise SpecError("--bytes", text, f"at most {MOST_SIZES} sizes, each larger than the one before", "Raise FACTOR.")
        sizes.append(following)
    return sizes


def _bytes(part: str, text: str, form: str) -> float:
    match = _SIZE.fullmatch(part.strip())
    if match is None:
        raise SpecError("--bytes", text, form)
    number, prefix, binary = match.groups()
    power = " KMG".index(prefix.upper()) if prefix else 0
    decimal = binary == "" and part.strip()[-1:] in "bB"  # 8GB is decimal, 8G and 8GiB are binary
    size = float(int(float(number) * (1000 if decimal else 1024) ** power))
    if not 1.0 <= size <= 2.0**50:
        raise SpecError("--bytes", text, "sizes from 1 byte to 1 PiB")
    return size
