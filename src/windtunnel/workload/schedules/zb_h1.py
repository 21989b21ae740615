"""ZB-H1 (Qi et al. 2023, arXiv 2401.10241, §2.1): 1F1B with a split backward pass, and the memory of 1F1B."""

from __future__ import annotations

from windtunnel.workload.schedules.action import Order
from windtunnel.workload.schedules.interleaved_zb import held_back


def zb_h1(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 1. The bubble is (stages - 1) (F + B - W), B and W the halves of the backward pass."""
    return held_back(stages, chunks, micro_batches, 1)
