"""A plan to predict, and what predicts it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from windtunnel.search.change import Change
from windtunnel.search.outcome import Outcome


class Trial(NamedTuple):
    """A plan to predict: the `number` by which the caller knows it, its frame, its change, and whether to predict it if it does not
    fit."""

    number: int
    frame: int
    change: Change
    anyway: bool = False


class Workers(Protocol):
    """Predicts trials in any order."""

    slots: int
    """Trials that should be under way at a time."""

    def submit(self, trial: Trial) -> None:
        """Begins a trial."""

    def next(self) -> tuple[Trial, Outcome]:
        """Waits for one trial that has ended."""

    def close(self) -> None:
        """Ends the workers; trials under way are lost."""
