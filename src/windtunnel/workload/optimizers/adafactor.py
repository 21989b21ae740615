"""Adafactor (Shazeer and Stern 2018, arXiv:1804.04235) without momentum: keeps row and column means of a matrix' second moments.

FSDP shards a tensor by rows, so ranks sum the column means. Kernels are those of a loop over tensors (transformers'
optimization.py): about ten per tensor.
"""

from __future__ import annotations

from windtunnel.workload.ops import Axis, Comm, Kind, Op
from windtunnel.workload.optimizers.update import ParameterUpdate

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
