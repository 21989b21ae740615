"""Categories under which seconds of a step are booked, with group and label. The engine sees only their numbers."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from windtunnel.base.dataclasses import dataclass
from windtunnel.workload.ops import Axis, Comm, Kind, OpTable, Phase


class StepGroup(StrEnum):
    """Groups of the parts of a step, in the order of reports."""

    COMPUTE = "compute"
    RECOMPUTE = "recompute"
    OPTIMIZER = "optimizer"
    CONTENTION = "contention"  # computation that runs slower beside communication
    COMMUNICATION = "communication"
    OFFLOAD = "offload"
    BUBBLE = "bubble"
    WAITING = "waiting"
    HOST = "host"
    DATA = "data"
    OTHER = "other"


class Category(IntEnum):
    """Computation by class, then the causes of waiting. `key`: the stable name in data; `axis`: the parallel axis of a call, or
    ""."""

    key: str
    group: StepGroup
    label: str
    axis: str

    def __new__(cls, code: int, group: StepGroup, label: str, axis: str = "") -> Category:
        member = int.__new__(cls, code)
        member._value_ = code
        member.group, member.label, member.axis = group, label, axis
        return member

    MATMUL = 0, StepGroup.COMPUTE, "matrix multiplication"
    ATTENTION = 1, StepGroup.COMPUTE, "attention"
    MEMORY_BOUND = 2, StepGroup.COMPUTE, "memory-bound kernels"
    RECOMPUTE = 3, StepGroup.RECOMPUTE, "recomputation"
    OPTIMIZER = 4, StepGroup.OPTIMIZER, "optimizer"
    TENSOR_PARALLEL = 5, StepGroup.COMMUNICATION, "tensor parallel", "tp"
    CONTEXT_PARALLEL = 6, StepGroup.COMMUNICATION, "context parallel", "cp"
    EXPERT_PARALLEL = 7, StepGroup.COMMUNICATION, "expert parallel", "ep"
    PARAMETER_GATHER = 8, StepGroup.COMMUNICATION, "parameter gathering", "shard"
    GRADIENT_REDUCE = 9, StepGroup.COMMUNICATION, "gradient reduction", "dp"
    PIPELINE_TRANSFER = 10, StepGroup.COMMUNICATION, "pipeline transfer", "pp"
    PIPELINE_BUBBLE = 11, StepGroup.BUBBLE, "pipeline bubble"
    STEP_SYNC = 12, StepGroup.COMMUNICATION, "step synchronisation", "world"
    OTHER_STAGES = 13, StepGroup.WAITING, "waiting for other stages"
    OFFLOAD = 14, StepGroup.OFFLOAD, "offload copies"
    CPU_UPDATE = 15, StepGroup.OPTIMIZER, "update by the CPU"
    SLOWER_RANKS = 16, StepGroup.WAITING, "waiting for slower ranks"
    DATA = 17, StepGroup.DATA, "waiting for data"


for _category in Category:
    _category.key = _category.name.lower()


class Task(IntEnum):
    """The task of an instance of the program. `key`: the stable name in data, and the category of its span in a timeline."""

    key: str
    FORWARD = 0
    BACKWARD = 1
    SEND = 2
    RECEIVE = 3
    GATHER = 4
    REDUCE = 5
    UPDATE = 6
    TIED_EMBEDDING = 7
    GRADIENT_NORM = 8
    HOST = 9
    BACKWARD_INPUT = 10
    BACKWARD_WEIGHT = 11
    FORWARD_AND_BACKWARD = 12  # two passes at once; the label is the forward pass's
    OFFLOAD = 13  # copies out of the GPU's memory, and back
    FETCH = 14
    TO_STORAGE = 15
    FROM_STORAGE = 16
    CPU_UPDATE = 17
    DATA_LOADING = 18

    @property
    def group(self) -> StepGroup:
        return _TASK_GROUPS.get(self, StepGroup.COMPUTE)


for _task in Task:
    _task.key = _task.name.lower().replace("_", " ")

_TASK_GROUPS = {
    Task.SEND: StepGroup.COMMUNICATION,
    Task.RECEIVE: StepGroup.COMMUNICATION,
    Task.GATHER: StepGroup.COMMUNICATION,
    Task.REDUCE: StepGroup.COMMUNICATION,
    Task.TIED_EMBEDDING: StepGroup.COMMUNICATION,
    Task.GRADIENT_NORM: StepGroup.COMMUNICATION,
    Task.OFFLOAD: StepGroup.OFFLOAD,
    Task.FETCH: StepGroup.OFFLOAD,
    Task.TO_STORAGE: StepGroup.OFFLOAD,
    Task.FROM_STORAGE: StepGroup.OFFLOAD,
    Task.UPDATE: StepGroup.OPTIMIZER,
    Task.CPU_UPDATE: StepGroup.OPTIMIZER,
    Task.DATA_LOADING: StepGroup.DATA,
    Task.HOST: StepGroup.HOST,
}

SPAN_GROUPS: dict[str, StepGroup] = {
    **{c.key.replace("_", " "): c.group for c in Category},  # of kernels and calls
    **{task.key: task.group for task in Task},
}
"""Group of each category that a span may have."""


@dataclass(frozen=True)
class StepPart:
    """One entry of a breakdown: stable `key`, group, label, and the axis of a call."""

    key: str
    group: StepGroup
    label: str
    axis: str = ""


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

_OWN_KEYS = {Category.PIPELINE_BUBBLE: "bubble", Category.SLOWER_RANKS: "slower_ranks", Category.OTHER_STAGES: "other_stages"}


def idle_key(category: Category) -> str:
    """Key of the seconds in which computation waited for `category`."""
    return _OWN_KEYS.get(category, f"exposed_{category.key}")


OVERLAP_SLOWDOWN = StepPart("overlap_slowdown", StepGroup.CONTENTION, "slowdown by overlapped calls")
SLOWEST_GPU = StepPart("slowest_gpu", StepGroup.WAITING, "waiting for the slowest GPU")
HOST_PART = StepPart("host", StepGroup.HOST, "host")


def _step_parts() -> dict[str, StepPart]:
    parts = [OVERLAP_SLOWDOWN, SLOWEST_GPU, HOST_PART]
    for c in Category:
        parts.append(StepPart(c.key, c.group, c.label, c.axis))  # computation, and calls that overlap with it
        if c not in COMPUTE:
            label = f"exposed {c.label}" if c.group in (StepGroup.COMMUNICATION, StepGroup.OFFLOAD) else c.label
            parts.append(StepPart(idle_key(c), c.group, label, c.axis))
    return {part.key: part for part in parts}


STEP_PARTS = _step_parts()
"""Every key of a breakdown and of overlapped seconds."""

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


_OF_AXIS = np.full(max(Axis) + 1, int(Category.MEMORY_BOUND), np.int32)
_OF_AXIS[list(_BY_AXIS)] = list(_BY_AXIS.values())
_OF_KIND = np.full(len(Kind), int(Category.MEMORY_BOUND), np.int32)
_OF_KIND[[Kind.GEMM, Kind.GROUPED_GEMM]] = Category.MATMUL
_OF_KIND[[Kind.ATTENTION, Kind.ATTENTION_BACKWARD]] = Category.ATTENTION


def categories(ops: OpTable) -> npt.NDArray[np.int32]:
    """The category of every row."""
    out = _OF_KIND[ops.kind]
    out[ops.phase == Phase.RECOMPUTE] = Category.RECOMPUTE
    out[ops.phase == Phase.OPTIMIZER] = Category.OPTIMIZER
    calls = ops.kind == Kind.COMM
    out[calls] = _OF_AXIS[ops.axis[calls]]
    out[(ops.comm == Comm.ALL_REDUCE) & (ops.axis == Axis.SHARD)] = Category.STEP_SYNC  # amax reduction of delayed scaling
    return out
