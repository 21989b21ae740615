"""ZB-H2 (Qi et al. 2023, arXiv 2401.10241, §2.2): twice the warm-up of 1F1B, and so twice its memory, but no bubble."""

from __future__ import annotations

from windtunnel.workload.schedules.action import Order
from windtunnel.workload.schedules.interleaved_zb import held_back


def zb_h2(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 1. With 2 stages - 1 micro batches or more, a stage idles max(0, (stages - 1) (F + B -
    2W)) between its first pass and its last."""
    return held_back(stages, chunks, micro_batches, 2)
