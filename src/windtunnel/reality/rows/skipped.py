"""The result for a row without a score."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Skipped:
    """Why a row cannot be turned into a job, or cannot be scored."""

    reason: str
