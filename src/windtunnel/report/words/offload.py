"""What offload puts outside of GPU memory, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from windtunnel.memory import NAMES, StageMemory
from windtunnel.memory.tiers import PARTS as TIER_PARTS
from windtunnel.sheet import numbers as say


def tier_lines(stages: Sequence[StageMemory]) -> list[Text]:
    """A line for each offload place, for the stage with most bytes there."""
    lines = []
    for place in dict.fromkeys(tier.place for stage in stages for tier in stage.tiers):
        tier, stage = max(((t, s.stage) for s in stages for t in s.tiers if t.place == place), key=lambda pair: pair[0].total)
        parts = [f"{name} {say.size(size)}" for name in TIER_PARTS if (size := getattr(tier, name)) > 0.0]
        line = Text(
            f"{NAMES[place]}, for each GPU: {say.size(tier.total)} of {say.size(tier.capacity)} ({', '.join(parts)}"
            + (f"; stage {stage})" if len(stages) > 1 else ")")
        )
        if tier.missing > 0.0:
            line.append(f" {say.size(tier.missing)} short", style="bold red")
        lines.append(line)
    return lines
