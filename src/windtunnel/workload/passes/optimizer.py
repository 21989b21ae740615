"""The end of the step: gradient norm, clipping and the parameter update."""

from __future__ import annotations

import math

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.ops import Kind, Op, Phase

TENSORS_PER_CHUNK = 320 * 65536
"""Elements that one multi-tensor kernel covers (Apex and PyTorch foreach: 320 blocks of 64 Ki elements)."""

MOMENTS = {"adam": 2, "lamb": 2, "sgd": 1}
"""fp32 numbers of optimizer state per parameter, beside a master copy."""


def sharded(job: Job, parameters: float, experts: float = 0.0) -> float:
    """Elements of a shard of `parameters`, `experts` of which are shared only by the ranks that hold the same experts."""
    return (parameters - experts) / job.shard_ranks + experts / job.expert_shard_ranks


def updated_parameters(job: Job, parameters: float, experts: float = 0.0) -> float:
    """Elements whose optimizer state this GPU holds: all, or a shard under ZeRO and FSDP, cut over both copies of a model that a
    pipeline holds twice."""
    return parameters if job.plan.sharding == "none" else sharded(job, parameters, experts) / job.copies


def optimizer_rows(job: Job, parameters: float, experts: float = 0.0) -> list[Op]:
    """Rows of the update of `parameters` elements held by one GPU (before data-parallel sharding), `experts` of them of experts."""
    runtime = job.runtime
    n = updated_parameters(job, parameters, experts)
    elsewhere = n * job.plan.offload.updated_away  # the CPU converts, scales and updates those
    n -= elsewhere
    grad, weight = DTYPE_BYTES[runtime.gradient_dtype], DTYPE_BYTES[runtime.weight_dtype]
    launches = max(1, math.ceil(n / TENSORS_PER_CHUNK))
    state = MOMENTS[runtime.optimizer]
    rows = []

    def add(name: str, moved: float, kernels: int, kind: Kind = Kind.OPTIMIZER) -> None:
        rows.append(Op(name, kind, Phase.OPTIMIZER, "optimizer", 0, n=int(n), bytes=moved, launches=kernels))

    moved_away = elsewhere * grad
    if grad < 4 and runtime.master_weights and n >= 1.0:  # unscale into fp32 copies, as fp16 optimizers with 16-bit gradients do
        add("gradients to fp32", n * (grad + 4), launches, Kind.COPY)
        grad = 4
    add("gradient norm", n * grad + moved_away, launches, Kind.REDUCE)
    if n < 1.0:
        return rows
    add("gradient clip", n * 2 * grad, launches, Kind.ELEMENTWISE)
    passes = 1 if runtime.fused_optimizer else 5
    main = 4.0 if runtime.master_weights else weight
    moved = n * (grad + 2 * main + 2 * 4 * state) + (n * 4 * 2 * (passes - 1))
    if runtime.optimizer == "lamb":  # second pass for the per-layer trust ratio
        moved += n * 4 * 4
        launches *= 2
    add(f"{runtime.optimizer} update", moved, launches * passes)
    if runtime.master_weights and weight < 4:
        add("weights from master", n * (4 + weight), launches, Kind.COPY)
    return rows
