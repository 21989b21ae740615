"""The share of a GPU's memory that a plan keeps free unless it is told otherwise: what predictions of memory err by.

Whether a job fits, in words: with room to spare, on paper, or not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from windtunnel.memory import StageMemory
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence
from windtunnel.spec.loading.files import ROOT, read_table


@functools.cache
def usual_margin() -> float:
    """The error of memory, as a share, below which 68 % of the published runs lie that it was compared with
    (`catalog/accuracy.toml`, which `windtunnel validate --record` writes); rounded up to 0.5 %."""
    return math.ceil(2.0 * float(read_table(ROOT / "accuracy.toml")["memory"]["sigma_pct"])) / 200.0


def margin_words() -> str:
    """Where the usual margin is from, for reports."""
    memory = read_table(ROOT / "accuracy.toml")["memory"]
    return f"memory of {memory['rows']} published runs is predicted within {memory['sigma_pct']} % at one sigma"


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
