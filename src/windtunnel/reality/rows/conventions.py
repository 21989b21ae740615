"""Published MFU by its source's FLOP count, so that the same count can be applied to a predicted step time.

The count of a source is in its file of `catalog/publications/` (`flops`), with the evidence.

The result for a row without a score.
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.reality.rows import publications
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.workload import visible


def mfu_pct(row: TrainingRow, step_time_s: float, peak: float, window: int | None = None) -> float | Skipped:
    """MFU in percent of a step of `step_time_s` seconds on GPUs of `peak` dense FLOP/s, counted as the row's source counts.

    `window`: keys that a query attends to at most; None for all before it.
    """
    named = [fact.flops for fact in publications.facts_for(publications.columns_of(row)) if fact.flops is not None]
    count = COUNTS[named[-1]] if named else None
    if count is None:
        return Skipped("MFU only, and the source's FLOP count is not known")
    per_token = count(row, window)
    if per_token == 0.0 or not (row.gbs and row.gpus and row.seq):
        return Skipped("MFU only, and a dimension that its FLOP count needs is not published")
    return 100.0 * per_token * row.gbs * row.seq / (step_time_s * row.gpus * peak)


def _narayanan(row: TrainingRow, window: int | None) -> float:
    """FLOPs a token; 0 where a dimension is blank."""
    layers, hidden, seq, vocab = row.layers or 0, row.hidden or 0, row.seq or 0, row.vocab or 0
    return model_flops_per_token(layers, hidden, seq, vocab, window) if layers and hidden and seq and vocab else 0.0


def model_flops_per_token(layers: int, hidden: int, seq: int, vocab: int, window: int | None = None) -> float:
    """72 L h^2 (1 + s/6h + V/12Lh): Narayanan et al., arXiv:2104.04473 section 5.1, without recompute.

    Attention's part is in proportion to the pairs that a causal window leaves.
    """
    attended = visible(seq, window) / visible(seq, None)
    return 72.0 * layers * hidden**2 * (1.0 + attended * seq / (6.0 * hidden) + vocab / (12.0 * layers * hidden))


def _palm(row: TrainingRow, window: int | None) -> float:
    """6 N + 12 L h s FLOPs a token (PaLM, arXiv:2204.02311, appendix B), every key counted; 0 where a dimension is blank."""
    layers, hidden, seq = row.layers or 0, row.hidden or 0, row.seq or 0
    if not (layers and hidden and seq and row.params_b):
        return 0.0
    return 6.0 * row.params_b * 1e9 + 12.0 * layers * hidden * seq


COUNTS = {"narayanan": _narayanan, "palm": _palm}
"""`flops` of a publication: FLOPs a token of a row."""


@dataclass(frozen=True)
class Skipped:
    """Why a row cannot be turned into a job, or cannot be scored."""

    reason: str
