"""One step of a schedule, and the writer that builds the actions of a stage."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Pass(IntEnum):
    """The pass that an action runs. BACKWARD is the whole backward pass. If a schedule splits it, the stage before waits for
    INPUT_GRADIENT, and WEIGHT_GRADIENT may run at any time after it."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRADIENT = 2
    WEIGHT_GRADIENT = 3


class Action(NamedTuple):
    """A pass of one micro batch through one virtual stage of the stage that runs it.

    `beside_next`: a forward pass that runs at the same time as the next backward pass in the list, so that calls of one overlap
    with computation of the other.
    """

    direction: Pass
    chunk: int
    micro_batch: int
    beside_next: bool = False


Order = tuple[Action, ...]
"""The actions of one stage."""


def table(order: Order) -> npt.NDArray[np.int64]:
    """[n, 4]: direction, chunk, micro batch and beside_next of each action."""
    return np.fromiter(chain.from_iterable(order), np.int64, 4 * len(order)).reshape(-1, 4)


class StagePasses(NamedTuple):
    """The passes of one stage as arrays, not to be changed."""

    actions: npt.NDArray[np.int64]
    """[n, 4] as `table` has them."""
    turns: npt.NDArray[np.int64]
    """First action of each turn: a pass, or a pair."""
    opens: npt.NDArray[np.int64]
    """[chunks] micro batch of a virtual stage's first forward pass."""
    closes: npt.NDArray[np.int64]
    """[chunks] micro batch of its last pass that produces gradients of parameters."""

    @classmethod
    def of(cls, order: Order) -> StagePasses:
        actions = table(order)
        direction, chunk, micro_batch, _ = actions.T
        opens, closes = np.full((2, int(chunk.max(initial=-1)) + 1), -1, np.int64)
        forward = np.flatnonzero(direction == Pass.FORWARD)[::-1]
        weights = np.flatnonzero((direction == Pass.BACKWARD) | (direction == Pass.WEIGHT_GRADIENT))
        for kept, at in ((opens, forward), (closes, weights)):
            kept[chunk[at]] = micro_batch[at]
        return cls(actions, np.flatnonzero(np.append(True, actions[:-1, 3] == 0)), opens, closes)


class Pen:
    """Writes the actions of a stage: each pass of a virtual stage takes its next micro batch, from `first[chunk]` on."""

    def __init__(self, first: tuple[int, ...] = ()) -> None:
        self.actions: list[Action] = []
        self.first = first
        self._written: Counter[tuple[Pass, int]] = Counter()

    def write(self, direction: Pass, chunk: int, beside_next: bool = False) -> Action:
        """Append the next micro batch's pass. A whole backward pass counts as both of its halves."""
        base = self.first[chunk] if self.first else 0
        key = Pass.INPUT_GRADIENT if direction is Pass.BACKWARD else direction
        action = Action(direction, chunk, base + self._written[key, chunk], beside_next)
        self._written[key, chunk] += 1
        if direction is Pass.BACKWARD:
            self._written[Pass.WEIGHT_GRADIENT, chunk] += 1
        self.actions.append(action)
        return action

    def weight_of(self, action: Action) -> None:
        """Append the second half of the backward pass that began with `action`."""
        self.actions.append(Action(Pass.WEIGHT_GRADIENT, action.chunk, action.micro_batch))
        self._written[Pass.WEIGHT_GRADIENT, action.chunk] += 1

    def count(self, direction: Pass, chunk: int) -> int:
        """Passes of a virtual stage written so far; whole backward passes count as both halves."""
        return self._written[direction, chunk]
