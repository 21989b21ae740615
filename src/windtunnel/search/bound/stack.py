"""Cells with the same blocks as columns, and what their micro batches cost on the stages of layouts.

A lower bound of the seconds of collectives for whole columns of sizes.

No call is faster than the greatest rate of all calls up to its size, taken at the next size of a grid. The same holds for calls
that have that size together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.network import Group
from windtunnel.network.closed.collective import greatest_rate
from windtunnel.network.nccl.settings import Settings
from windtunnel.search.bound.cells import Cell, Measure, PipelineLayout
from windtunnel.spec import Cluster
from windtunnel.workload import Comm
from windtunnel.workload.schedules import Pass

ELEMENTS = ("dense", "experts", "quantised", "frozen", "frozen_quantised", "sharded", "again")
"""Columns of a cell that count elements. Most cells share them with others."""


@dataclass(frozen=True)
class CellStack:
    """C cells that have the same B blocks, as columns [C, B]; see `Cell`. `times` [C, kinds, measures, passes, B]; `update`
    [C, sizes, 2]; `pass_host` [C, passes].

    `elements` [W, 7, B]: the different `ELEMENTS`; `of` [C]: the place of a cell's own among them.
    """

    cells: tuple[Cell, ...]
    times: Floats
    elements: Floats
    of: Int64s
    saved: Floats
    working: Floats
    boundary: Floats
    update: Floats
    narrow: Floats
    pass_host: Floats
    sequence_parallel: Bools

    @classmethod
    def from_cells(cls, cells: Sequence[Cell]) -> CellStack:
        counted = np.stack([[getattr(cell, name) for name in ELEMENTS] for cell in cells])
        different: dict[bytes, int] = {}
        of = np.array([different.setdefault(each.tobytes(), len(different)) for each in counted], np.int64)
        return cls(
            cells=tuple(cells),
            times=np.stack([np.stack(cell.times)[..., cell.columns] for cell in cells]),
            elements=np.stack([np.frombuffer(each).reshape(counted.shape[1:]) for each in different]),
            of=of,
            saved=np.stack([cell.saved for cell in cells]),
            working=np.stack([cell.working for cell in cells]),
            boundary=np.array([cell.boundary for cell in cells]),
            update=np.array([cell.update.rates for cell in cells]),
            narrow=np.array([cell.update.narrow for cell in cells]),
            pass_host=np.array([cell.pass_host for cell in cells]),
            sequence_parallel=np.array([cell.job.plan.sequence_parallel for cell in cells]),
        )

    def take(self, places: Int64s) -> CellStack:
        """Some of the cells."""
        if len(places) == len(self.cells):
            return self
        columns = {name: getattr(self, name)[places] for name in self.__dataclass_fields__ if name not in ("cells", "elements")}
        return CellStack(cells=tuple(self.cells[place] for place in places.tolist()), elements=self.elements, **columns)


@dataclass(frozen=True)
class Staged:
    """Least seconds [C, L, S] of every cell on every stage of L layouts of a pipeline, without transfers between stages.

    `work`, `host`, `locked`, `calls`: of one micro batch, both passes, all virtual stages. `before_weights`: the part of `work`
    that gradients of inputs wait for. `head`: forward passes of the parts before the stage's first one; `tail`: backward passes
    through them. `head_sends`, `sends` [L, S]: transfers before that part, and one after another after the stage's own passes of
    a micro batch. `last` [C, L, S, V]: the most that a backward pass of each virtual stage takes on the slowest kind
    (`_longest_backward`), -inf for one that a layout lacks. `saved` [C, L, S, V]: bytes that a micro batch leaves in each virtual
    stage; `working` [C, L, S]: least working bytes of a backward pass, over the last blocks of virtual stages. `by_kind`
    [C, L, 2, kinds, S]: `work` if all ranks were of that kind, and its computation alone; all else is that of the fastest kind.
    `computing` [C, L, 2]: seconds of computation of the mean GPU in one micro batch, and of products and attention alone.
    `elements` [W, 7, L, S] and `part_elements` [W, 7, L, S, V]: elements on a stage and in each of its virtual stages.
    """

    layouts: tuple[PipelineLayout, ...]
    work: Floats
    before_weights: Floats
    host: Floats
    locked: Floats
    calls: Floats
    head: Floats
    tail: Floats
    last: Floats
    head_sends: Int64s
    sends: Int64s
    saved: Floats
    working: Floats
    by_kind: Floats
    computing: Floats
    elements: Floats
    part_elements: Floats

    @classmethod
    def of(cls, stack: CellStack, layouts: Sequence[PipelineLayout]) -> Staged:
        """Of layouts with as many stages and copies of the model."""
        parts = [_stage_columns(stack, layout) for layout in layouts]
        virtual = max(layout.stage_parts.shape[1] for layout in layouts)
        columns: dict[str, Any] = {}
        for name in parts[0]:
            each = [part[name] for part in parts]
            if name in PADDED:
                each = [_pad_virtual(one, virtual, PADDED[name]) for one in each]
            columns[name] = np.stack(each, axis=AXES.get(name, 1))
        return cls(layouts=tuple(layouts), **columns)


PADDED = {"last": -np.inf, "saved": 0.0, "part_elements": 0.0}
"""Columns of virtual stages, with what one has that is not there."""

AXES = {"head_sends": 0, "sends": 0, "elements": 2, "part_elements": 2}
"""Columns whose axis of layouts is not the second."""


def _pad_virtual(values: Floats, virtual: int, filling: float) -> Floats:
    missing = virtual - values.shape[-1]
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)], constant_values=filling) if missing else values


def _stage_columns(stack: CellStack, layout: PipelineLayout) -> dict[str, Any]:
    """The columns of `Staged` for one layout, without their axis of layouts."""
    places = layout.stage_parts  # [S, V]
    first = places.min(axis=1)
    of_part, stage, both = _sums(stack, layout)
    chain = Measure.COMPUTE if layout.pairs else Measure.CHAIN

    def before(seconds: Floats) -> Floats:
        sums = np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)], axis=1)
        return np.asarray(sums[:, first], np.float64)

    forward, whole = of_part(chain, Pass.FORWARD), both(chain)
    backward = of_part(chain, Pass.INPUT_GRADIENT) if layout.split else whole - forward
    ways = [Pass.FORWARD, *_backward_passes(layout)]
    runs = layout.counts.sum(axis=1) > 0.0  # [parts] whether it has passes
    host = both(Measure.HOST) + stack.pass_host[:, ways].sum(axis=1)[:, None] * runs[None, :]
    measures = [chain, Measure.COMPUTE, Measure.TENSOR]
    by_kind = stack.times[:, :, measures][:, :, :, ways].sum(axis=3) @ layout.stage_counts.T  # [C, kinds, 3, S]
    crosses = layout.crosses.astype(np.int64)
    ahead, back = (each[places].sum(axis=1) for each in (np.append(crosses[1:], 0), crosses))
    sends = np.maximum(ahead, back) if layout.pairs else ahead + back  # those of passes beside each other go at the same time
    part_elements = np.asarray((stack.elements @ layout.counts.T)[:, :, places], np.float64)
    return dict(
        work=stage(whole),
        before_weights=stage(forward + backward),
        host=stage(host),
        locked=stage(both(Measure.LOCKED)),
        calls=stage(both(Measure.CALLS)) if layout.pairs else np.zeros((len(forward), layout.pp)),
        head=before(forward),
        tail=before(backward),
        last=_longest_backward(stack, layout, chain)[:, places],
        head_sends=np.cumsum(crosses)[first],
        sends=sends,
        saved=np.asarray((stack.saved @ layout.counts.T)[:, places], np.float64),
        working=_working_bytes(stack, layout)[:, places].min(axis=2),
        by_kind=by_kind[:, :, :2].swapaxes(1, 2),
        computing=by_kind[:, :, 1:].min(axis=1).mean(axis=2),
        elements=part_elements.sum(axis=3),
        part_elements=part_elements,
    )


def _backward_passes(layout: PipelineLayout) -> list[Pass]:
    """The passes that make up a backward."""
    return [Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT] if layout.split else [Pass.BACKWARD]


def _longest_backward(stack: CellStack, layout: PipelineLayout, chain: Measure) -> Floats:
    """Most seconds [C, parts] that a backward pass of the slowest kind keeps its stage, whatever paces it: its chain, its host or
    its streams of calls."""
    ways = _backward_passes(layout)
    seconds = stack.times.max(axis=1)[:, :, ways].sum(axis=2) @ layout.counts.T  # [C, measures, parts]
    seconds[:, Measure.HOST] += stack.pass_host[:, ways].sum(axis=1)[:, None]
    return np.asarray(seconds[:, [chain, Measure.HOST, Measure.LOCKED, Measure.CALLS]].max(axis=1), np.float64)


OfPart = Callable[[Measure, Pass], Floats]


def _sums(stack: CellStack, layout: PipelineLayout) -> tuple[OfPart, Callable[[Floats], Floats], Callable[[Measure], Floats]]:
    """Least seconds [C, parts] of one pass and of both passes of a measure; and the sum over the parts of each stage."""
    fastest = stack.times.min(axis=1)
    places = layout.stage_parts

    def of_part(measure: Measure, way: Pass) -> Floats:
        return np.asarray(fastest[:, measure, way] @ layout.counts.T, np.float64)

    def stage(seconds: Floats) -> Floats:
        return np.asarray(seconds[:, places].sum(axis=2), np.float64)

    def both(measure: Measure) -> Floats:
        return of_part(measure, Pass.FORWARD) + sum((of_part(measure, way) for way in _backward_passes(layout)), start=np.zeros(()))

    return of_part, stage, both


def _working_bytes(stack: CellStack, layout: PipelineLayout) -> Floats:
    """[C, parts] working bytes of the block where a part's backward pass begins: the least of its blocks, which are not in order
    here."""
    unused = np.where(layout.counts > 0.0, 0.0, np.inf)
    least = np.stack([(stack.working + row).min(axis=1) for row in unused], axis=1)
    return np.where(np.isfinite(least), least, 0.0)


STEPS = 4
"""Sizes of the grid per doubling."""

LAST = 60 * STEPS
"""The last step of the grid: 2 ** 60 bytes."""


class CallFloor:
    """Least seconds of calls; `clusters`: a cluster as each kind of its ranks has it. Calls over groups are known by numbers."""

    def __init__(self, clusters: Sequence[Cluster], settings: Settings) -> None:
        self.clusters, self.settings = clusters, settings
        self._numbers: dict[tuple[Comm, Group] | None, int] = {}
        self._rates = np.zeros(0)  # [numbers * steps]; 0: not known yet

    def number(self, comm: Comm, group: Group) -> int:
        """The number of a call over a group."""
        return self._numbers.setdefault((comm, group), len(self._numbers))

    def no_call(self) -> int:
        """The number that stands for no call."""
        return self._numbers.setdefault(None, len(self._numbers))

    def seconds(self, numbers: Int64s, sizes: Floats) -> Floats:
        """Lower bound of the seconds of the N calls with these numbers, each of `sizes` [N, ...] bytes together; 0 for less than a
        byte."""
        size = np.maximum(sizes, 1.0)
        step = np.minimum((np.log2(size) * STEPS).astype(np.int64), LAST)
        rates = self._room_for_rates()
        place = numbers.reshape(-1, *(1,) * (sizes.ndim - 1)) * (LAST + 1) + step
        found = rates[place]
        if not found.all():
            members = list(self._numbers)
            for unknown in np.unique(place[found == 0.0]).tolist():
                call, at = members[unknown // (LAST + 1)], unknown % (LAST + 1)
                rates[unknown] = self._rate(call, 2.0 ** ((at + 1) / STEPS))
            found = rates[place]
        return np.where(sizes >= 1.0, size / found, 0.0)

    def _room_for_rates(self) -> Floats:
        """The rates of all calls, with room for more."""
        missing = len(self._numbers) * (LAST + 1) - len(self._rates)
        if missing > 0:
            self._rates = np.append(self._rates, np.zeros(missing + len(self._rates)))
        return self._rates

    def _rate(self, call: tuple[Comm, Group] | None, size: float) -> float:
        """Bytes a second of the fastest call of at most `size` bytes."""
        if call is None or call[1].ranks <= 1:
            return math.inf
        comm, group = call
        return max(greatest_rate(each, comm, group, size, self.settings) for each in self.clusters)
