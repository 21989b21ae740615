"""Adam and momentum SGD: element-wise, in one pass over gradient, weight and moments.

LAMB (You et al. 2020, arXiv:1904.00962): Adam's step scaled for each tensor by the norm of the weight over that of the step.

As in Apex' FusedLAMB: one kernel writes the step over the gradient, one takes the norms of weights and steps, one applies them.
If a tensor is sharded, its two norms are summed over the ranks, all tensors in one call (Apex' DistributedFusedLAMB).

Adafactor (Shazeer and Stern 2018, arXiv:1804.04235) without momentum: keeps row and column means of a matrix' second moments.

FSDP shards a tensor by rows, so ranks sum the column means. Kernels are those of a loop over tensors (transformers'
optimization.py): about ten per tensor.
"""

from __future__ import annotations

from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Axis, Comm, Kind, Op
from windtunnel.workload.optimizers.update import ParameterUpdate


def adam_state(update: ParameterUpdate) -> float:
    """Bytes of both moments."""
    return update.elements * (update.first_moment_width + update.second_moment_width)


def sgd_state(update: ParameterUpdate) -> float:
    """Bytes of the momentum."""
    return update.elements * update.first_moment_width


def adam_rows(update: ParameterUpdate, name: str = "adam", elements: float | None = None) -> list[Op]:
    """Reads the gradient, reads and writes weight and moments; four more fp32 passes if unfused. `elements`: those updated by Adam,
    if another optimizer updates the others."""
    role = Role.ADAM_UPDATE if elements is None else Role.NONE
    return _rows(
        update,
        name,
        update.elements if elements is None else elements,
        update.first_moment_width + update.second_moment_width,
        role,
    )


def sgd_rows(update: ParameterUpdate) -> list[Op]:
    return _rows(update, "sgd", update.elements, update.first_moment_width)


def _rows(update: ParameterUpdate, name: str, elements: float, moments: float, role: Role = Role.NONE) -> list[Op]:
    passes = 1 if update.job.runtime.fused_optimizer else 5
    width = update.grad + 2 * update.main + 2 * moments + 4 * 2 * (passes - 1)
    return [update.moving_kernel(f"{name} update", elements, width, update.launches(elements) * passes)._replace(role=role)]


def lamb_rows(update: ParameterUpdate) -> list[Op]:
    job, n = update.job, update.elements
    passes = 1 if job.runtime.fused_optimizer else 5
    moments = update.first_moment_width + update.second_moment_width
    rows = [
        update.moving_kernel(
            "lamb step", n, update.grad + update.main + 2 * moments + 4 + 8 * (passes - 1), update.launches(n) * passes
        ),
        update.moving_kernel("lamb norms", n, update.main + 4, 2 * update.launches(n), Kind.REDUCE),
    ]
    norms = 2 * 4.0 * update.held.tensors
    if job.plan.sharding != "none" and job.shard_ranks > 1 and norms:
        rows.append(update.call("lamb norms over shards", Comm.ALL_REDUCE, Axis.SHARD, norms))
    if job.plan.tp > 1 and norms:
        rows.append(update.call("lamb norms over tp", Comm.ALL_REDUCE, Axis.TP, norms))
    return [*rows, update.moving_kernel("lamb update", n, 2 * update.main + 4)]


KERNELS = 10
"""Launches per tensor: square, two means and their update, two roots, product, norm, clip, step."""


def adafactor_state(update: ParameterUpdate) -> float:
    """Bytes of the second moments in fp32: factored for matrices, full for other tensors."""
    weights, share = update.held, update.elements / update.held.elements if update.held.elements else 0.0
    factors = sum((m.rows + m.columns) * count for m, count in weights.matrices.items())
    return 4.0 * (update.elements - update.in_matrices + share * factors)


def adafactor_rows(update: ParameterUpdate) -> list[Op]:
    job, n = update.job, update.elements
    launches = KERNELS * max(1, update.held.tensors)
    columns = 4.0 * sum(m.columns * count for m, count in update.held.matrices.items())
    rows = [update.moving_kernel("adafactor means", n, update.grad, max(1, launches // 2), Kind.REDUCE)]
    if job.plan.sharding != "none" and job.shard_ranks > 1 and columns:
        rows.append(update.call("adafactor columns over shards", Comm.ALL_REDUCE, Axis.SHARD, columns))
    # write the step and take its norm, take the weight's norm, update the weight
    width = (update.grad + 4) + 4 + update.main + (4 + 2 * update.main)
    return [*rows, update.moving_kernel("adafactor update", n, width, max(1, launches - launches // 2))]
