"""Measured collectives: what nccl-tests, rccl-tests and OSU's benchmarks print, as rows of one kind."""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field


class MeasuredCall(NamedTuple):
    """One size of one test. `bytes` is the whole buffer as nccl-tests counts it; `seconds` the mean of a call; `wrong` the
    elements with wrong results, -1 where the test did not check."""

    bytes: float
    seconds: float
    in_place: bool = False
    wrong: int = -1


@dataclass(frozen=True)
class CallTable:
    """The calls of one test. `ranks` and `nodes` are 0 where the source does not tell them; `library` is nccl, rccl or mpi."""

    comm: Comm
    ranks: int
    nodes: int
    calls: tuple[MeasuredCall, ...]
    library: str = "nccl"
    device: str = ""  # as the driver spells it
    on_host: bool = False  # the buffers lie in host memory
    source: str = ""


@dataclass(frozen=True)
class MeasuredCalls:
    """All tests of one import, and what the source said of the machine in passing."""

    tables: tuple[CallTable, ...]
    notes: tuple[str, ...] = field(default=())
