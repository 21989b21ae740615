"""A run: what a training job really did, by step, rank and stream. Traces, logs and monitors all become one.

A run read from a log has steps only; one read from profiler traces has events too, one table for each rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field


class EventKind(IntEnum):
    """Where an event of a trace ran and what it was."""

    KERNEL = 0  # computes on the device
    CALL = 1  # a communication kernel on the device
    COPY = 2  # memcpy and memset
    LAUNCH = 3  # a runtime or driver call of the host
    OPERATOR = 4  # an operator of the framework, on the host
    ANNOTATION = 5  # a range that a person or the framework named
    SYNC = 6  # the host or a stream waits for the device
    PYTHON = 7  # a Python function


ON_DEVICE = (EventKind.KERNEL, EventKind.CALL, EventKind.COPY)


@dataclass(frozen=True)
class Events:
    """E events of one rank in columns, by begin. Seconds from the trace's own zero (`RankTrace.zero`). `name`, `correlation`,
    `external` and what is of calls may have fewer bits, as many as their values need: widen them before any arithmetic."""

    kind: Uint8s
    """[E] EventKind."""
    name: Int32s
    """[E] index of `names`."""
    lane: Int32s
    """[E] stream of a device event, thread of a host event."""
    begin: Floats
    seconds: Floats
    correlation: Int64s
    """[E] links a launch to its device event; -1 none."""
    external: Int64s
    """[E] links an operator to its launches; -1 none."""
    comm: Uint8s
    """[E] base.comm.Comm; 0 none."""
    bytes: Floats
    """[E] of a call: the total buffer, as nccl-tests counts it; NaN unknown."""
    group: Int32s
    """[E] index of `groups`; -1 none."""
    sequence: Int64s
    """[E] number of the call in its group; -1 unknown."""
    peer: Int32s
    """[E] rank that a send goes to or a receive comes from; -1 none."""
    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    group_names: tuple[str, ...] = ()
    """The framework's, such as "DATA_PARALLEL_GROUP"; empty text where it gave none."""

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class OperatorCalls:
    """All calls of one operator with equal inputs in one pass and module. `shapes`, `dtypes`: of its inputs, in PyTorch's words;
    `seconds`: of what it launched on the device (of a CPU: its own)."""

    op: str
    module: str
    phase: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    number: int
    seconds: float


@dataclass(frozen=True)
class RankTrace:
    """What one rank's trace says. `zero`: seconds of the rank's clock at begin 0 (an epoch where the trace gives one)."""

    rank: int
    events: Events
    zero: float = 0.0
    device: str = ""  # the GPU's name as the driver spells it
    world: int = 0  # ranks of the job; 0 unknown
    source: str = ""
    operators: tuple[OperatorCalls, ...] = ()


@dataclass(frozen=True)
class Steps:
    """S steps in columns; NaN where the source does not say. `rank` is -1 where a line speaks for the whole job."""

    rank: Int32s
    step: Int64s
    begin: Floats
    """Seconds; NaN where only lengths are known."""
    seconds: Floats
    tokens: Floats
    """Tokens of the whole job."""
    tflops: Floats
    """Model TFLOP/s of a GPU."""
    loss: Floats
    memory: Floats
    """B, peak of the rank that reports it."""

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of(cls, rank: object, step: object, **columns: object) -> Steps:
        """Steps from sequences; columns left out are unknown."""
        steps = np.asarray(step, np.int64)
        unknown = np.full(len(steps), np.nan)
        values = {
            name: np.asarray(columns[name], np.float64) if name in columns else unknown
            for name in ("begin", "seconds", "tokens", "tflops", "loss", "memory")
        }
        return cls(np.broadcast_to(np.asarray(rank, np.int32), steps.shape).copy(), steps, **values)


@dataclass(frozen=True)
class Run:
    """What was measured of a job. `facts` are what the source says of it in passing: framework, version, batch, degrees."""

    steps: Steps
    ranks: tuple[RankTrace, ...] = ()
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    source: str = ""
