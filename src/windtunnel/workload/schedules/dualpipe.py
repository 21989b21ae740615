"""DualPipe (DeepSeek-V3, arXiv 2412.19437, §3.2.1): half of the micro batches enter at each end of the pipeline.

Stage s holds the model's parts s and stages - 1 - s, the second for micro batches from the other end, so all parameters exist
twice. Forward passes of one direction run beside backward passes of the other.
"""

from __future__ import annotations

from windtunnel.workload.schedules.action import Order
from windtunnel.workload.schedules.dualpipev import two_ways


def dualpipe(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage. `chunks` is 2 (one per direction); stages and micro batches are even; micro batches >= 2 stages.

    The first half of the micro batches enters at stage 0 and uses chunk 0, the second half at the last stage and uses chunk 1.
    """
    half = stages // 2
    first = (0, micro_batches // 2)
    plans = []
    for stage in range(stages):
        mirrored = stage >= half
        near = stages - 1 - stage if mirrored else stage
        plans.append(two_ways(half, near, micro_batches // 2, (1, 0) if mirrored else (0, 1), first))
    return tuple(plans)
