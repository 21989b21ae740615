"""Designs in words: fields of their plans that fit a line, and how many were tried."""

from __future__ import annotations

from windtunnel.search.design import DesignResult
from windtunnel.sheet import numbers as say

PLAN_FIELDS = tuple(f"plan.{name}" for name in ("tp", "cp", "pp", "vpp", "ep", "micro_batch", "recompute", "sharding"))
"""Fields of a plan that fit a line."""


def tried_lines(result: DesignResult) -> list[str]:
    """How many designs were tried, and why some have no plan."""
    failed = sum(result.failed.values())
    lines = [f"{result.trials:,} designs were tried; {failed:,} have no plan. A sampler proves nothing about the others."]
    if failed:
        lines.append(f"Most often: {say.clean(max(result.failed, key=lambda reason: result.failed[reason]))}")
    return lines
