"""RMS norm and layer norm over the hidden dimension."""

from __future__ import annotations

from torch import nn

from windtunnel.profile.case import Case

EPSILON = 1e-5


def norm(case: Case, width: int | None = None) -> nn.Module:
    """The norm of `case.model` over the last dimension: x / sqrt(mean(x²) + ε) · gain (Zhang and Sennrich 2019), or layer norm."""
    kind = nn.RMSNorm if case.model.norm == "rmsnorm" else nn.LayerNorm
    return kind(width or case.model.hidden, eps=EPSILON)
