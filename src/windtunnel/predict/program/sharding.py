"""Policies that interleave a stage's passes with data-parallel communication: replicated, ZeRO-1/2 or fully sharded."""

from __future__ import annotations

from typing import Protocol

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.predict.program import demands
from windtunnel.predict.program.fully_sharded import FullySharded
from windtunnel.predict.program.offload import OffloadCopies
from windtunnel.predict.program.recorded import PassGroup
from windtunnel.predict.program.replicated import Replicated
from windtunnel.predict.program.stage import Stage
from windtunnel.workload.schedules import Action, Order


class Sharding(Protocol):
    """Appends passes and, at the end of the step, gradient reductions."""

    copies: OffloadCopies
    by_block: bool
    """Whether every pass is run block by block."""

    pending: list[int]
    """Reductions inside passes that the update waits for."""

    def stops(self, actions: Int64s) -> Bools:
        """[n] whether each action of `schedules.table` is more than one run of `pass_template`: calls or copies interrupt it."""

    def group_passes(self, actions: Int64s, stopped: Bools) -> list[PassGroup] | None:
        """The actions [n] that stop in groups of equal ones; None if they can only be run one by one."""

    def pass_template(self, action: Action, beside: Action | None = None) -> int:
        """Template of a whole pass of a virtual stage, or of a forward pass and the backward pass `beside` it."""

    def run(self, turn: Order, waits: tuple[int, ...]) -> int:
        """Append one pass that `stops`, or a forward pass and the backward pass beside it of which one does; returns the instance
        that transfers wait for."""

    def reduce(self, last: int) -> tuple[int, ...]:
        """Append the remaining gradient reductions after pass `last`; returns what the update waits for."""

    def finish(self, update: int) -> None:
        """Append the calls after the update."""


def sharding_for(stage: Stage) -> Sharding:
    """The policy of the plan and the runtime."""
    job = stage.workload.job
    gathers = demands.gathers_in_passes(job, job.runtime.overlap_param_gather)
    return FullySharded(stage) if gathers else Replicated(stage)
