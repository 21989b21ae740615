"""The parameters that an optimizer updates, and helpers that build its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.identity import Module
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream

TENSORS_PER_CHUNK = 320 * 65536
"""Elements that one multi-tensor kernel covers (Apex and PyTorch foreach: 320 blocks of 64 Ki elements)."""

STATE_BYTES = {**DTYPE_BYTES, "int8": 1.0 + 4.0 / 256.0}
"""Bytes of a number of optimizer state; int8 has an fp32 scale for every 256 (bitsandbytes' block-wise states, Dettmers 2021)."""

Cut = Literal["", "rows", "columns"]


class Matrix(NamedTuple):
    """A weight of `rows` x `columns` on this GPU; `cut`: the side that tensor parallelism divides; `expert`: it belongs to an
    expert."""

    rows: int
    columns: int
    cut: Cut = ""
    expert: bool = False

    @property
    def elements(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class Held:
    """Parameters of one GPU's stage before data-parallel sharding: elements, those of experts, tensors, and weights by shape.

    Weights are those of hidden layers, without embedding and head; empty unless the optimizer needs shapes."""

    elements: float
    experts: float = 0.0
    tensors: int = 0
    matrices: Mapping[Matrix, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ParameterUpdate:
    """The update of `elements` on this GPU; if state is sharded, they are its shard.

    `grad`, `main` are bytes of a gradient and of the number that is updated; `first`, `second` those of a moment.
    """

    job: Job
    held: Held
    elements: float
    grad: float
    main: float

    @property
    def first_moment_width(self) -> float:
        return STATE_BYTES[self.job.runtime.exp_avg_dtype]

    @property
    def second_moment_width(self) -> float:
        return STATE_BYTES[self.job.runtime.exp_avg_sq_dtype]

    @property
    def in_matrices(self) -> float:
        """Those of `elements` that belong to `held.matrices`."""
        unsharded = sum(m.elements * count for m, count in self.held.matrices.items())
        return self.elements * unsharded / self.held.elements if self.held.elements else 0.0

    def launches(self, elements: float) -> int:
        """Number of multi-tensor kernels for so many elements and tensors."""
        return max(1, math.ceil(elements / TENSORS_PER_CHUNK))

    def moving_kernel(
        self, name: str, elements: float, width: float, launches: int | None = None, kind: Kind = Kind.OPTIMIZER
    ) -> Op:
        """A kernel that moves `width` bytes of each element."""
        count = self.launches(elements) if launches is None else launches
        return Op(name, kind, Phase.OPTIMIZER, Module.OPTIMIZER, 0, n=int(elements), bytes=elements * width, launches=count)

    def call(self, name: str, call: Comm, axis: Axis, size: float) -> Op:
        """A call that the update waits for."""
        stream = Stream.TP if axis is Axis.TP else Stream.GATHER
        return Op(
            name, Kind.COMM, Phase.OPTIMIZER, Module.OPTIMIZER, bytes=size, comm=call, axis=axis, stream=stream, blocking=True
        )
