"""What a second of the step is booked under. The engine sees only the numbers; reports see the names."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from windtunnel.workload.ops import Axis, Comm, Kind, OpTable, Phase


class Category(IntEnum):
    """Computation by class, then what computation may wait for."""

    MATMUL = 0
    ATTENTION = 1
    MEMORY_BOUND = 2
    RECOMPUTE = 3
    OPTIMIZER = 4
    TENSOR_PARALLEL = 5
    CONTEXT_PARALLEL = 6
    EXPERT_PARALLEL = 7
    PARAMETER_GATHER = 8
    GRADIENT_REDUCE = 9
    PIPELINE_TRANSFER = 10
    PIPELINE_BUBBLE = 11
    STEP_SYNC = 12
    OTHER_STAGES = 13
    OFFLOAD = 14  # copies to and from memory beside the GPU's
    CPU_UPDATE = 15
    SLOWER_RANKS = 16
    DATA = 17


COMPUTE = (Category.MATMUL, Category.ATTENTION, Category.MEMORY_BOUND, Category.RECOMPUTE, Category.OPTIMIZER)

MOVING = (
    Category.TENSOR_PARALLEL,
    Category.CONTEXT_PARALLEL,
    Category.EXPERT_PARALLEL,
    Category.PARAMETER_GATHER,
    Category.GRADIENT_REDUCE,
    Category.PIPELINE_TRANSFER,
    Category.STEP_SYNC,
    Category.OFFLOAD,
    Category.CPU_UPDATE,
)

_BY_AXIS = {
    Axis.TP: Category.TENSOR_PARALLEL,
    Axis.CP: Category.CONTEXT_PARALLEL,
    Axis.CP_HEADS: Category.CONTEXT_PARALLEL,
    Axis.CP_RING: Category.CONTEXT_PARALLEL,
    Axis.EP: Category.EXPERT_PARALLEL,
    Axis.ETP: Category.EXPERT_PARALLEL,
    Axis.EXPERT_DP: Category.GRADIENT_REDUCE,
    Axis.DP: Category.GRADIENT_REDUCE,
    Axis.SHARD: Category.PARAMETER_GATHER,
    Axis.NEAR: Category.PARAMETER_GATHER,
    Axis.FAR: Category.PARAMETER_GATHER,
    Axis.EXPERT_SHARD: Category.PARAMETER_GATHER,
    Axis.EXPERT_REPLICA: Category.GRADIENT_REDUCE,
    Axis.REPLICA: Category.GRADIENT_REDUCE,
    Axis.PP: Category.PIPELINE_TRANSFER,
    Axis.EMBEDDING: Category.GRADIENT_REDUCE,
    Axis.WORLD: Category.STEP_SYNC,
}


def categories(ops: OpTable) -> npt.NDArray[np.int32]:
    """The category of every row."""
    out = np.full(len(ops), int(Category.MEMORY_BOUND), np.int32)
    out[(ops.kind == Kind.GEMM) | (ops.kind == Kind.GROUPED_GEMM)] = Category.MATMUL
    out[(ops.kind == Kind.ATTENTION) | (ops.kind == Kind.ATTENTION_BACKWARD)] = Category.ATTENTION
    out[ops.phase == Phase.RECOMPUTE] = Category.RECOMPUTE
    out[ops.phase == Phase.OPTIMIZER] = Category.OPTIMIZER
    for row in np.nonzero(ops.kind == Kind.COMM)[0]:
        out[row] = _BY_AXIS[Axis(int(ops.axis[row]))]
    out[(ops.comm == Comm.ALL_REDUCE) & (ops.axis == Axis.SHARD)] = Category.STEP_SYNC  # largest values of delayed scaling
    return out
