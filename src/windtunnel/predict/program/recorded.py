"""Passes that calls interrupt, written once for all equal ones: their instances as numbers that only need to be moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.engine import NO_WAIT
from windtunnel.predict.price.calls import CallKey

_GATHER = -2
"""In recorded waits: the first gather that a pass waits for; further ones count down."""


@dataclass(frozen=True)
class RecordedPass:
    """The k instances of a pass, numbered from 0."""

    template: Int64s  # [k]
    waits: Int64s  # [k, w] instances of the pass, -1 none, or gathers before the passes
    labels: Int64s  # [k, 3]
    of_pass: Bools  # [k] whether the instance is of the pass's micro batch; else of none
    calls: tuple[tuple[int, CallKey], ...]  # (instance, call)
    last: int  # the last run
    pending: tuple[int, ...]  # calls that the update waits for

    def __len__(self) -> int:
        return len(self.template)


@dataclass(frozen=True)
class PassGroup:
    """Equal passes of a stage: their places among its actions, and by pass the instances of the gathers that they wait for."""

    recorded: RecordedPass
    actions: Int64s  # [n]
    gathers: Int64s  # [n, g]


def gather_codes(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """What stands for the gathers of each group of a recorded pass, which wait for so many."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [tuple(_GATHER - at for at in range(begin, end)) for begin, end in zip(ends[:-1], ends[1:], strict=True)]


def joined_groups(of_stages: Sequence[tuple[int, Sequence[PassGroup]]]) -> list[PassGroup]:
    """Equal passes of several stages as one group: `of_stages` are the place of each stage's first action, and its groups."""
    joined: dict[int, list[PassGroup]] = {}
    for begin, groups in of_stages:
        for group in groups:
            joined.setdefault(id(group.recorded), []).append(PassGroup(group.recorded, group.actions + begin, group.gathers))
    return [
        PassGroup(
            parts[0].recorded,
            np.concatenate([part.actions for part in parts]),
            np.concatenate([part.gathers for part in parts]),
        )
        for parts in joined.values()
    ]


def move_waits(group: PassGroup, base: Int64s, shift: Int64s) -> Int64s:
    """[n, k, w] the waits of equal passes whose first instances are `base` [n]; gathers are `shift` [n] instances further on."""
    waits = group.recorded.waits
    moved = np.where(waits >= 0, waits + base[:, None, None], NO_WAIT)
    gathered = waits <= _GATHER
    if gathered.any():
        moved[:, gathered] = group.gathers[:, _GATHER - waits[gathered]] - shift[:, None]
    return moved
