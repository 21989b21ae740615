"""Published MFU as its source counts it, so that the same count can be applied to a predicted step time.

MegaScale (arXiv:2402.15627) counts model FLOPs per token as 72*L*h^2*(1 + s/6h + V/12Lh), the formula of Narayanan et al.
(arXiv:2104.04473, section 5.1, without recompute), over 312 TFLOP/s for each A100: with the printed iteration times that gives
the printed MFU of its eight Megatron-LM rows within 0.4 %. In its eight rows with a sliding window of unpublished width that count
is 1.0 to 1.5 % above the printed MFU, so attention is counted smaller there: here in proportion to the pairs of tokens that attend,
which with a window of half the sequence gives the printed MFU within 0.8 %, the four largest jobs' within 0.4 %.

Llama 3 (arXiv:2407.21783, table 4) cites PaLM for MFU (arXiv:2204.02311, appendix B): 6*N + 12*L*h*s FLOPs per token, every key
counted, with N all parameters, as its budget of 3.8e25 FLOPs for 15.6e12 tokens is 6*N. It prints no step times that would tell;
at 128 Ki tokens of context the count without attention is less than half of it.
"""

from __future__ import annotations

from windtunnel.reality.rows import TrainingRow
from windtunnel.reality.skipped import Skipped
from windtunnel.workload import visible


def mfu_pct(row: TrainingRow, step_time_s: float, peak: float, window: int | None = None) -> float | Skipped:
    """MFU in percent of a step of `step_time_s` seconds on GPUs of `peak` dense FLOP/s, counted as the row's source counts.

    `window`: keys that a query attends to at most; None for all before it.
    """
    count = next((count for mark, count in _COUNTS.items() if mark in (row.source or "")), None)
    if count is None:
        return Skipped("MFU only, and the source's FLOP count is not known")
    per_token = count(row, window)
    if per_token == 0.0 or not (row.gbs and row.gpus and row.seq):
        return Skipped("MFU only, and a dimension that its FLOP count needs is not published")
    return 100.0 * per_token * row.gbs * row.seq / (step_time_s * row.gpus * peak)


def _megascale(row: TrainingRow, window: int | None) -> float:
    """FLOPs a token; 0 where a dimension is blank."""
    layers, hidden, seq, vocab = row.layers or 0, row.hidden or 0, row.seq or 0, row.vocab or 0
    return model_flops_per_token(layers, hidden, seq, vocab, window) if layers and hidden and seq and vocab else 0.0


def model_flops_per_token(layers: int, hidden: int, seq: int, vocab: int, window: int | None = None) -> float:
    """MegaScale's count: 72 L h^2 (1 + s/6h + V/12Lh), attention's part in proportion to the pairs that a causal window leaves."""
    attended = visible(seq, window) / visible(seq, None)
    return 72.0 * layers * hidden**2 * (1.0 + attended * seq / (6.0 * hidden) + vocab / (12.0 * layers * hidden))


def _palm(row: TrainingRow, window: int | None) -> float:
    """FLOPs a token; 0 where a dimension is blank."""
    layers, hidden, seq = row.layers or 0, row.hidden or 0, row.seq or 0
    if not (layers and hidden and seq and row.params_b):
        return 0.0
    return 6.0 * row.params_b * 1e9 + 12.0 * layers * hidden * seq


_COUNTS = {"2402.15627": _megascale, "2407.21783": _palm}
"""By the source's number: FLOPs a token of a row."""
