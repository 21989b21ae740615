"""Passes that calls interrupt, written once for all equal ones: their instances as numbers that only need to be moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.turns import RecordedPasses
from windtunnel.predict.price.calls import CallKey

_GATHER = -2
"""In recorded waits: the first gather that a pass waits for; further ones count down."""


@dataclass(frozen=True)
class RecordedPass:
    """The k instances of a pass, numbered from 0."""

    template: Int32s  # [k]
    number: Int32s  # [k] of waits
    waits: Int32s  # instances of the pass, or gathers before the passes
    task: Int32s  # [k]
    of_pass: Int64s  # [k] 1 if the instance is of the pass's micro batch; else of none
    calls: tuple[tuple[int, CallKey], ...]  # (instance, call)
    last: int  # the last run
    pending: tuple[int, ...]  # calls that the update waits for


class StoppedPass(NamedTuple):
    """A pass of a stage that calls interrupt: its place among the stage's actions, and the instances of the gathers that it waits
    for."""

    place: int
    recorded: RecordedPass
    gathers: list[int]


def gather_codes(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """What stands for the gathers of each group of a recorded pass, which wait for so many."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [tuple(_GATHER - at for at in range(begin, end)) for begin, end in zip(ends[:-1], ends[1:], strict=True)]


class NumberedPasses(NamedTuple):
    """Recorded `passes` and their `columns`; of each action [n] which of them it is, -1 for none, and where its gathers begin."""

    of_action: Int64s
    gather: Int64s
    passes: list[RecordedPass]
    columns: RecordedPasses


def number_passes(of_stages: Iterable[tuple[int, Sequence[StoppedPass]]], count: int, before: Int64s) -> NumberedPasses:
    """The passes among `count` actions: of each stage the place of its first action, and its passes. `before` [stages]: instances
    of each stage so far."""
    numbers: dict[int, int] = {}
    passes: list[RecordedPass] = []
    gathers: list[int] = []
    rows: list[int] = []  # of each: its place, its number, its first gather
    for begin, stopped in of_stages:
        for place, recorded, awaited in stopped:
            number = numbers.setdefault(id(recorded), len(passes))
            if number == len(passes):
                passes.append(recorded)
            rows += (begin + place, number, len(gathers))
            gathers += awaited
    of_action, gather = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    places, of_action_there, gather_there = np.array(rows, np.int64).reshape(-1, 3).T
    of_action[places], gather[places] = of_action_there, gather_there
    none = np.zeros(0, np.int64)
    template, task, of_pass, number_of_waits, waits = (
        (
            np.concatenate([none, *columns])
            for columns in zip(*((of.template, of.task, of.of_pass, of.number, of.waits) for of in passes), strict=True)
        )
        if passes
        else (none,) * 5
    )
    columns = RecordedPasses(
        start=np.cumsum([0, *(len(of.template) for of in passes)]), pass_template=template, task=task, of_pass=of_pass,
        wait_start=np.cumsum(np.append(0, number_of_waits)), waits=waits, last=np.array([of.last for of in passes], np.int64),
        gathers=np.array(gathers, np.int64), before=before,
    )  # fmt: skip
    return NumberedPasses(of_action, gather, passes, columns)
