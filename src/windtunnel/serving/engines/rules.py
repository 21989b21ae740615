"""What a scheduler is."""

from __future__ import annotations

from typing import Protocol

from windtunnel.base.arrays import Int64s
from windtunnel.serving.engine import ENGINES, ServeEngine
from windtunnel.serving.lane import Lane, ServeStep


class SchedulerRules(Protocol):
    """Chooses passes of a lane. Rules that the C++ core has too say by which name in a `core` of their own class, and in
    `core_numbers` what they read there beside the engine's limits."""

    def next_step(self, lane: Lane) -> ServeStep | None:
        """The next pass, with its blocks taken; None if nothing can run."""

    def reserve(self, lane: Lane) -> int:
        """Tokens beyond its computed ones for which a decoding request has blocks in a pass."""

    def finish(self, lane: Lane, step: ServeStep) -> tuple[Int64s, Int64s]:
        """Books a pass, as `Lane.finish`; gives back the blocks of rejected drafts, where the engine does."""

    def repeats(self, lane: Lane) -> int:
        """How many times at most a pass of one token for every running request would be chosen again if nothing ends and nothing
        comes."""


def rules_of(engine: ServeEngine) -> SchedulerRules:
    """The rules of an engine, at the start of a run."""
    rules: SchedulerRules = ENGINES[engine.name].rules(engine)
    return rules
