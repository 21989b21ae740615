"""Whether a job fits, in words: with room to spare, on paper, or not."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.memory import StageMemory
from windtunnel.search.margin import usual_margin
from windtunnel.sheet import numbers as say


def verdict(stages: Sequence[StageMemory]) -> tuple[str, str]:
    """(words, style): `fits` in green; `fits on paper` in yellow where less is free than predictions of memory err by; `DOES NOT
    FIT` in red."""
    worst = max(stages, key=lambda stage: stage.missing)
    if not all(stage.fits for stage in stages):
        return f"DOES NOT FIT, {say.size(worst.missing)} short", "bold red"
    free = f"{say.size(-worst.missing)} free" if worst.missing else "nothing free"
    if any(stage.missing + usual_margin() * stage.usable > 0.0 for stage in stages):
        return f"fits on paper, {free} (memory errs by {say.percent(usual_margin())})", "bold yellow"
    return f"fits, {free}", "bold green"
