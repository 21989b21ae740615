"""ZBV (Qi et al. 2023, arXiv 2401.10241, §6; PyTorch's ZBVZeroBubble): two virtual stages per stage, in a V.

The first stage holds both ends of the model, so backward begins on the stage where forward ended.
"""

from __future__ import annotations

from windtunnel.workload.schedules.action import Order, Pass, Pen

F, B, W = Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT


def zbv(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 2. No bubble if F = B = W. The order is that of 2 stages - 1 micro batches or more; for a
    smaller step, the passes of missing micro batches are left out."""
    full = max(2 * stages - 1, micro_batches)
    return tuple(tuple(a for a in _stage(stages, stage, full) if a.micro_batch < micro_batches) for stage in range(stages))


def _stage(stages: int, stage: int, micro_batches: int) -> Order:
    pen = Pen()

    def run(chunk: int, *passes: Pass) -> None:
        for way in passes:
            pen.write(way, chunk)

    for _ in range(2 * (stages - stage) - 1):
        run(0, F)
    for _ in range(stage):
        run(1, F)
        run(0, F)
    for _ in range(stages - stage):
        run(1, F, B, W)
    while pen.count(F, 1) < max(pen.count(F, 0), micro_batches):
        if pen.count(F, 0) < micro_batches:
            run(0, F)
        run(0, B, W)
        run(1, F, B, W)
    for _ in range(stage):
        run(0, B)
        run(1, B)
    for _ in range(stages - stage):
        run(0, B, W)
    for chunk in (1, 0):
        run(chunk, *(W for _ in range(pen.count(B, chunk) - pen.count(W, chunk))))
    return tuple(pen.actions)
