"""The operators of a training step, as columns.

One row is one kernel, or several equal kernels (`launches`), or one communication call. A row appears once, however many layers,
micro batches and ranks run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.comm import Comm as Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.records.schema import DTYPES as DTYPES  # `dtype` column: index into this tuple
from windtunnel.workload.identity import MODULE_LABELS, Module, Role


class Kind(IntEnum):
    """Kernel class, by which the estimator picks a curve."""

    GEMM = 0  # batch x (m,k)@(k,n)
    # fused forward: batch = sequences x local heads, m = query tokens, n = key tokens, k = head dim, extra = heads per kv head
    ATTENTION = 1
    ATTENTION_BACKWARD = 2
    NORM = 3  # m rows, n columns
    ELEMENTWISE = 4  # bytes only
    SOFTMAX = 5  # m rows, n columns
    CROSS_ENTROPY = 6  # m tokens, n classes
    EMBEDDING = 7  # m tokens, n columns
    OPTIMIZER = 8  # n parameters
    COPY = 9  # device copy, fill or cast: bytes
    REDUCE = 10  # reductions, such as norms of gradients: bytes read
    COMM = 11  # see `comm`
    GROUPED_GEMM = 12  # grouped GEMM, one product per local expert: batch = experts, m = tokens of each
    # chunked recurrence: batch = sequences x heads, m = tokens, n = width of values, k = of keys or states, extra = of a chunk
    SCAN = 13


class Phase(IntEnum):
    """Which pass of the step the row belongs to."""

    FORWARD = 0
    RECOMPUTE = 1
    DGRAD = 2  # backward, gradient of the input
    WGRAD = 3  # backward, gradient of the weight
    OPTIMIZER = 4
    GRADIENT_SYNC = 5
    PARAMETER_SYNC = 6


class Axis(IntEnum):
    """The group of ranks that a communication row runs over."""

    NONE = 0
    TP = 1
    CP = 2
    EP = 3
    DP = 4
    PP = 5
    SHARD = 6  # ranks that share sharded state (dp x cp, or the stated group)
    REPLICA = 7  # ranks that hold the same shard (hybrid sharding)
    EMBEDDING = 8  # first and last stage, tied embeddings
    WORLD = 9
    ETP = 10  # expert tensor parallel: ranks that share the same experts' matrices
    EXPERT_DP = 11  # ranks that hold the same (parts of) experts
    NEAR = 16  # ranks of a sharding group inside a node, or those that share a secondary copy
    FAR = 17  # ranks of equal place in the other such parts of the sharding group
    EXPERT_SHARD = 18  # among ranks with the same experts, those that share one copy of the sharded state
    EXPERT_REPLICA = 19  # ranks of equal place in the other replicas
    CP_HEADS = 20  # context-parallel ranks that exchange heads, if a ring runs over such groups
    CP_RING = 21  # ranks of equal place in the other groups


CONTEXT_AXES = (Axis.CP, Axis.CP_HEADS, Axis.CP_RING)
"""Groups among the ranks that share a sequence."""


class Stream(IntEnum):
    """Device streams, as in the frameworks: computation, and one per communication group and direction."""

    COMPUTE = 0
    TP = 1
    CP = 2
    GATHER = 3  # parameters, over the sharding group
    REDUCE = 4  # gradients, over the data-parallel group
    SEND_FORWARD = 5
    RECV_FORWARD = 6
    SEND_BACKWARD = 7
    RECV_BACKWARD = 8
    WORLD = 9  # norms, tied embeddings
    # pipeline transfers of micro batches that pass the stages in reverse: the second half of a V, or those from the other end
    SEND_FORWARD_BACK = 10
    RECV_FORWARD_BACK = 11
    SEND_BACKWARD_BACK = 12
    RECV_BACKWARD_BACK = 13
    EP = 14  # tokens to experts and back
    # copies by the GPU's copy engines, and host work for an offloaded optimizer
    TO_HOST = 24
    FROM_HOST = 25
    CPU = 26
    STORAGE_READ = 27
    STORAGE_WRITE = 28
    DATA = 30  # batches


class Op(NamedTuple):
    """One row while a graph is being built; see `OpTable` for units."""

    name: str
    kind: Kind
    phase: Phase
    module: Module = Module.NONE
    dtype: int = 3
    batch: int = 1
    m: int = 0
    n: int = 0
    k: int = 0
    extra: int = 1
    flops: float = 0.0
    bytes: float = 0.0
    launches: int = 1
    comm: Comm = Comm.NONE
    axis: Axis = Axis.NONE
    stream: Stream = Stream.COMPUTE
    waits: tuple[int, ...] = ()  # rows of the same unit that this one waits for; -1 is the last computation before it
    sync: bool = False  # the host blocks until the row has ended
    graphed: bool = False  # launched by a CUDA graph of its module
    blocking: bool = False  # a COMM row between the computation before and after it; the unit's end waits for other COMM rows
    role: Role = Role.NONE
    further: bool = False  # a further chunk of a product that overlaps with its communication
    label: str = ""  # label of the module, if it differs from the default


@dataclass(frozen=True)
class OpTable:
    """Columns of R rows. FLOPs and bytes are per execution on one GPU; bytes are HBM traffic, or the buffer of a COMM row.

    `names` and `modules` are labels for people; `module` and `role` identify a row.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    kind: npt.NDArray[np.int8]
    phase: npt.NDArray[np.int8]
    dtype: npt.NDArray[np.int8]
    batch: npt.NDArray[np.int64]
    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    extra: npt.NDArray[np.int64]
    flops: npt.NDArray[np.float64]
    bytes: npt.NDArray[np.float64]
    launches: npt.NDArray[np.int64]
    comm: npt.NDArray[np.int8]
    axis: npt.NDArray[np.int8]
    stream: npt.NDArray[np.int8]
    sync: npt.NDArray[np.bool_]
    graphed: npt.NDArray[np.bool_]
    module: npt.NDArray[np.int8]
    role: npt.NDArray[np.int8]
    further: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def join(cls, tables: Sequence[OpTable]) -> OpTable:
        """The rows of all tables, one after the other."""
        if len(tables) == 1:
            return tables[0]
        names, modules = (
            tuple(chain.from_iterable(labels)) for labels in zip(*((t.names, t.modules) for t in tables), strict=True)
        )
        typed: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in tables]) for name in COLUMNS}
        return cls(names=names, modules=modules, **typed)

    @classmethod
    def of(cls, rows: list[Op]) -> OpTable:
        """Columns from rows."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(Op._fields)
        c = dict(zip(Op._fields, columns, strict=True))
        typed: dict[str, Any] = {name: np.fromiter(c[name], dtype, len(rows)) for name, dtype in COLUMNS.items()}
        labels = tuple(own or MODULE_LABELS[module] for own, module in zip(c["label"], c["module"], strict=True))
        return cls(names=c["name"], modules=labels, **typed)


COLUMNS: dict[str, npt.DTypeLike] = {
    **dict.fromkeys(("module", "role", "kind", "phase", "dtype", "comm", "axis", "stream"), np.int8),
    **dict.fromkeys(("batch", "m", "n", "k", "extra", "launches"), np.int64),
    **dict.fromkeys(("flops", "bytes"), np.float64),
    **dict.fromkeys(("sync", "graphed", "further"), np.bool_),
}
"""Types of the columns of numbers."""
