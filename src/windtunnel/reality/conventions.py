"""Published MFU as its source counts it, so that the same count can be applied to a predicted step time.

MegaScale (arXiv:2402.15627) counts model FLOPs per token as 72*L*h^2*(1 + s/6h + V/12Lh), the formula of Narayanan et al.
(arXiv:2104.04473, section 5.1, without recompute), over 312 TFLOP/s for each A100: with the printed iteration times that gives
the printed MFU of its eight Megatron-LM rows within 0.4 %. Rows with a sliding window are counted smaller by an unpublished
amount and are not scored.

Llama 3 (arXiv:2407.21783, table 4) cites PaLM for MFU (arXiv:2204.02311, appendix B): 6*N + 12*L*h*s FLOPs per token, every key
counted, with N all parameters, as its budget of 3.8e25 FLOPs for 15.6e12 tokens is 6*N. It prints no step times that would tell;
at 128 Ki tokens of context the count without attention is less than half of it.
"""

from __future__ import annotations

from windtunnel.reality.rows import TrainingRow
from windtunnel.reality.skipped import Skipped


def mfu_pct(row: TrainingRow, step_time_s: float, peak: float) -> float | Skipped:
    """MFU in percent of a step of `step_time_s` seconds on GPUs of `peak` dense FLOP/s, counted as the row's source counts."""
    count = next((count for mark, count in _COUNTS.items() if mark in (row.source or "")), None)
    if count is None:
        return Skipped("MFU only, and the source's FLOP count is not known")
    per_token = count(row)
    if isinstance(per_token, Skipped):
        return per_token
    if per_token == 0.0 or not (row.gbs and row.gpus and row.seq):
        return Skipped("MFU only, and a dimension that its FLOP count needs is not published")
    return 100.0 * per_token * row.gbs * row.seq / (step_time_s * row.gpus * peak)


def _megascale(row: TrainingRow) -> float | Skipped:
    """FLOPs a token; 0 where a dimension is blank."""
    if "sliding_window" in (row.features or ""):
        return Skipped("MFU only, and the source's FLOP count with a sliding window is not known")
    layers, hidden, seq, vocab = row.layers or 0, row.hidden or 0, row.seq or 0, row.vocab or 0
    if not (layers and hidden and seq and vocab):
        return 0.0
    return 72.0 * layers * hidden**2 * (1.0 + seq / (6.0 * hidden) + vocab / (12.0 * layers * hidden))


def _palm(row: TrainingRow) -> float | Skipped:
    """FLOPs a token; 0 where a dimension is blank."""
    layers, hidden, seq = row.layers or 0, row.hidden or 0, row.seq or 0
    if not (layers and hidden and seq and row.params_b):
        return 0.0
    return 6.0 * row.params_b * 1e9 + 12.0 * layers * hidden * seq


_COUNTS = {"2402.15627": _megascale, "2407.21783": _palm}
"""By the source's number: FLOPs a token of a row."""
