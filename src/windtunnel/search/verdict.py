"""Whether a job fits, in words: with room to spare, on paper, or not."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.memory import StageMemory
from windtunnel.search.margin import usual_margin
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence


def verdict(stages: Sequence[StageMemory]) -> tuple[str, str]:
    """(words, mood): `fits` is good; `fits on paper` warns where less is free than predictions of memory err by; `DOES NOT FIT` is
    bad."""
    worst = max(stages, key=lambda stage: stage.missing)
    if not all(stage.fits for stage in stages):
        return Sentence("DOES NOT FIT, {size} short", size=say.size(worst.missing)), "bad"
    free = Sentence("{size} free", size=say.size(-worst.missing)) if worst.missing else Sentence("nothing free")
    if any(stage.missing + usual_margin() * stage.usable > 0.0 for stage in stages):
        error = say.percent(usual_margin())
        return Sentence("fits on paper, {free} (memory errs by {error})", free=free, error=error), "warn"
    return Sentence("fits, {free}", free=free), "good"
