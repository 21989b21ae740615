"""Published MFU as its source counts it, so that the same count can be applied to a predicted step time.

MegaScale (arXiv:2402.15627) counts model FLOPs per token as 72*L*h^2*(1 + s/6h + V/12Lh), the formula of Narayanan et al.
(arXiv:2104.04473, section 5.1, without recompute), over 312 TFLOP/s for each A100: with the printed iteration times that gives
the printed MFU of its eight Megatron-LM rows within 0.4 %. In its eight rows with a sliding window of unpublished width that count
is 1.0 to 1.5 % above the printed MFU, so attention is counted smaller there: here in proportion to the pairs of tokens that attend,
which with a window of half the sequence gives the printed MFU within 0.8 %, the four largest jobs' within 0.4 %.
"""

from __future__ import annotations

from windtunnel.reality.rows import TrainingRow
from windtunnel.reality.skipped import Skipped
from windtunnel.workload import visible

_KNOWN = ("2402.15627",)


def mfu_pct(row: TrainingRow, step_time_s: float, peak: float, window: int | None = None) -> float | Skipped:
    """MFU in percent of a step of `step_time_s` seconds on GPUs of `peak` dense FLOP/s, counted as the row's source counts.

    `window`: keys that a query attends to at most; None for all before it.
    """
    if not any(mark in (row.source or "") for mark in _KNOWN):
        return Skipped("MFU only, and the source's FLOP count is not known")
    layers, hidden, seq, vocab = row.layers or 0, row.hidden or 0, row.seq or 0, row.vocab or 0
    if not (layers and hidden and seq and vocab and row.gbs and row.gpus):
        return Skipped("MFU only, and a dimension that its FLOP count needs is not published")
    per_token = model_flops_per_token(layers, hidden, seq, vocab, window)
    return 100.0 * per_token * row.gbs * seq / (step_time_s * row.gpus * peak)


def model_flops_per_token(layers: int, hidden: int, seq: int, vocab: int, window: int | None = None) -> float:
    """MegaScale's count: 72 L h^2 (1 + s/6h + V/12Lh), attention's part in proportion to the pairs that a causal window leaves."""
    attended = visible(seq, window) / visible(seq, None)
    return 72.0 * layers * hidden**2 * (1.0 + attended * seq / (6.0 * hidden) + vocab / (12.0 * layers * hidden))
