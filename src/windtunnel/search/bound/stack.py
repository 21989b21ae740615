"""Cells with the same blocks as columns, and what their micro batches cost on the stages of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.search.bound.cells import Cell
from windtunnel.search.bound.chains import Measure
from windtunnel.search.bound.layouts import PipelineLayout
from windtunnel.workload.schedules import Pass


@dataclass(frozen=True)
class CellStack:
    """C cells that have the same B blocks, as columns [C, B]; see `Cell`. `times` [C, kinds, measures, passes, B]."""

    cells: tuple[Cell, ...]
    times: Floats
    dense: Floats
    experts: Floats
    quantised: Floats
    frozen: Floats
    frozen_quantised: Floats
    sharded: Floats
    saved: Floats
    working: Floats
    boundary: Floats
    update: Floats
    pass_host: Floats
    sequence_parallel: Bools

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> CellStack:
        def column(name: str) -> Floats:
            return np.stack([getattr(cell, name) for cell in cells])

        names = ("dense", "experts", "quantised", "frozen", "frozen_quantised", "sharded", "saved", "working")
        columns = {name: column(name) for name in names}
        return cls(
            cells=tuple(cells),
            times=np.stack([cell.times for cell in cells]),
            boundary=np.array([cell.boundary for cell in cells]),
            update=np.array([cell.update for cell in cells]),
            pass_host=np.array([cell.pass_host for cell in cells]),
            sequence_parallel=np.array([cell.job.plan.sequence_parallel for cell in cells]),
            **columns,
        )


@dataclass(frozen=True)
class Staged:
    """Least seconds [C, S] of every cell on every stage of a layout, without transfers between stages.

    `work`, `host`, `locked`, `calls`: of one micro batch, both passes, all virtual stages. `before_weights`: the part of `work`
    that
    gradients of inputs wait for. `head`: forward passes of the parts before the stage's first one; `tail`: backward passes through
    them. `head_sends`, `sends` [S]: transfers before that part, and after the stage's own passes of one micro batch.
    `last` [C, S, V]: the backward pass of each virtual stage. `saved` [C, S, V]: bytes that a micro batch leaves in each virtual
    stage;
    `working` [C, S]: least working bytes of a backward pass, over the last blocks of virtual stages. `by_kind`
    [C, kinds, 2, S]: `work` if all ranks were of that kind, and its computation alone; all else is that of the fastest kind.
    `computing` [C, 2]: seconds of computation of the mean GPU in one micro batch, and of products and attention alone.
    """

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

    @classmethod
    def of(cls, stack: CellStack, layout: PipelineLayout) -> Staged:
        chain = Measure.COMPUTE if layout.pairs else Measure.CHAIN
        places = np.array(layout.places, np.int64)  # [S, V]
        first = places.min(axis=1)

        fastest = stack.times.min(axis=1)

        def part(measure: Measure, way: Pass) -> Floats:
            return np.asarray(fastest[:, measure, way] @ layout.counts.T, np.float64)  # [C, parts]

        def stage(seconds: Floats) -> Floats:
            return np.asarray(seconds[:, places].sum(axis=2), np.float64)  # [C, S]

        def both(measure: Measure) -> Floats:
            back = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT) if layout.split else (Pass.BACKWARD,)
            return part(measure, Pass.FORWARD) + sum((part(measure, way) for way in back), start=np.zeros(()))

        def before(seconds: Floats) -> Floats:
            sums = np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)], axis=1)
            return np.asarray(sums[:, first], np.float64)

        forward, whole = part(chain, Pass.FORWARD), both(chain)
        back = part(chain, Pass.INPUT_GRADIENT) if layout.split else whole - forward
        passes = 2.0 * (layout.counts.sum(axis=1) > 0.0)  # of a part and micro batch, each with the host's cost of a pass
        host = both(Measure.HOST) + stack.pass_host[:, None] * passes[None, :]
        ways = (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT) if layout.split else (Pass.FORWARD, Pass.BACKWARD)
        by_kind = stack.times[:, :, :, list(ways)].sum(axis=3) @ layout.stage_counts.T  # [C, kinds, measures, S]
        crosses = layout.crosses.astype(np.int64)
        sends = np.append(crosses[1:], 0) + crosses  # a part sends ahead and back
        return cls(
            work=stage(whole),
            before_weights=stage(forward + back),
            host=stage(host),
            locked=stage(both(Measure.LOCKED)),
            calls=stage(both(Measure.CALLS)) if layout.pairs else np.zeros((len(forward), layout.pp)),
            head=before(forward),
            tail=before(back),
            last=np.asarray((whole - forward)[:, places], np.float64),
            head_sends=np.cumsum(crosses)[first],
            sends=sends[places].sum(axis=1),
            saved=np.asarray((stack.saved @ layout.counts.T)[:, places], np.float64),
            working=_working(stack, layout)[:, places].min(axis=2),
            by_kind=by_kind[:, :, [chain, Measure.COMPUTE]],
            computing=by_kind[:, :, [Measure.COMPUTE, Measure.TENSOR]].min(axis=1).mean(axis=2),
        )


def _working(stack: CellStack, layout: PipelineLayout) -> Floats:
    """[C, parts] working bytes of the block where a part's backward pass begins: the least of its blocks, which are not in order
    here."""
    unused = np.where(layout.counts > 0.0, 0.0, np.inf)
    least = np.stack([(stack.working + row).min(axis=1) for row in unused], axis=1)
    return np.where(np.isfinite(least), least, 0.0)
