"""The end of the step: gradient norm, clipping and the parameter update."""

from __future__ import annotations

from collections import Counter

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.graph import Block
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.ops import Kind, Op, Phase
from windtunnel.workload.optimizers import OPTIMIZERS, Held, Matrix, ParameterUpdate
from windtunnel.workload.passes.backward import link
from windtunnel.workload.tape import Unit

MOMENTS = {"adam": 2, "lamb": 2, "sgd": 1}
"""Elements of optimizer state per parameter, beside a master copy, for optimizers that treat all parameters alike."""

_ELSEWHERE = (Module.EMBEDDING, Module.HEAD)
"""Modules whose matrices do not belong to hidden layers."""


def shard_elements(job: Job, parameters: float, experts: float = 0.0) -> float:
    """Elements of a shard of `parameters`, `experts` of which are shared only by the ranks that hold the same experts."""
    return (parameters - experts) / job.shard_ranks + experts / job.expert_shard_ranks


def updated_parameters(job: Job, parameters: float, experts: float = 0.0) -> float:
    """Elements whose optimizer state is on this GPU: all, or a shard under ZeRO and FSDP; under DualPipe the shards are cut over
    both copies of the model."""
    return parameters if job.plan.sharding == "none" else shard_elements(job, parameters, experts) / job.copies


def matrices_of(job: Job, units: list[Unit]) -> Counter[Matrix]:
    """Weights of hidden layers by shape, from the products of their gradients. Empty if the optimizer does not need shapes."""
    counts: Counter[Matrix] = Counter()
    if not OPTIMIZERS[job.runtime.optimizer].by_shape:
        return counts
    for unit in units:
        products = (op for op in unit.backward if op.phase is Phase.WGRAD and op.kind in (Kind.GEMM, Kind.GROUPED_GEMM))
        product = next(products, None)
        if product is not None and unit.place not in _ELSEWHERE and unit.parameters:
            counts[Matrix(product.m, product.n, unit.cut, product.kind is Kind.GROUPED_GEMM)] += product.batch
    return counts


def held_by(parameters: float, experts: float, blocks: list[tuple[Block, int]]) -> Held:
    """Parameters of a stage of `blocks` with repeats."""
    shapes: Counter[Matrix] = Counter()
    for block, times in blocks:
        shapes.update({matrix: count * times for matrix, count in block.matrices})
    return Held(parameters, experts, sum(len(block.tensors.trained) * times for block, times in blocks), shapes)


def state_bytes(job: Job, stage_weights: Held) -> float:
    """Bytes of optimizer state of `stage_weights` on this GPU, without master copies."""
    n = updated_parameters(job, stage_weights.elements, stage_weights.experts)
    return OPTIMIZERS[job.runtime.optimizer].state(ParameterUpdate(job, stage_weights, n, 4.0, 4.0))


def update_of(job: Job, held: Held, copies: list[Op] | None = None) -> tuple[list[Op], list[tuple[int, ...]]]:
    """Rows that update the parameters of one GPU, then `copies`; and the rows that each waits for, counted from the first row after
    the gradient's norm. `held` is before data-parallel sharding."""
    before, after = optimizer_rows(job, held)
    linked, waits = link([after + (copies or [])])
    return before + linked, [()] * len(before) + waits


def optimizer_rows(job: Job, stage_weights: Held) -> tuple[list[Op], list[Op]]:
    """Rows up to the gradient's norm, and after it."""
    runtime = job.runtime
    n = updated_parameters(job, stage_weights.elements, stage_weights.experts)
    elsewhere = n * job.plan.offload.updated_away  # the CPU converts, scales and updates them
    n -= elsewhere
    grad, weight = DTYPE_BYTES[runtime.gradient_dtype], DTYPE_BYTES[runtime.weight_dtype]
    moved_away = elsewhere * grad
    update = ParameterUpdate(job, stage_weights, n, grad, 4.0 if runtime.master_weights else weight)
    before = []
    if grad < 4 and runtime.master_weights and n >= 1.0:  # unscale into fp32 copies, as fp16 optimizers with 16-bit gradients do
        before.append(update.moving_kernel("gradients to fp32", n, grad + 4, kind=Kind.COPY))
        grad = 4
        update = ParameterUpdate(job, stage_weights, n, grad, 4.0)
    norm = update.moving_kernel("gradient norm", n, grad, kind=Kind.REDUCE)
    before.append(norm._replace(bytes=norm.bytes + moved_away, role=Role.GRADIENT_NORM))
    if n < 1.0:
        return before, []
    clip = update.moving_kernel("gradient clip", n, 2 * grad, kind=Kind.ELEMENTWISE)._replace(role=Role.GRADIENT_CLIP)
    after = [clip, *OPTIMIZERS[runtime.optimizer].rows(update)]
    if runtime.master_weights and weight < 4:
        after.append(update.moving_kernel("weights from master", n, 4 + weight, kind=Kind.COPY))
    return before, after
