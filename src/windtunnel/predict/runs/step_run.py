"""One run of a step, however it was run, and where its time went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine import HOST, TAIL, Timeline
from windtunnel.memory import StageMemory
from windtunnel.predict.category import COMPUTE, HOST_PART, OVERLAP_SLOWDOWN, SLOWEST_GPU, Category, idle_key
from windtunnel.predict.prediction import UnequalResult
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.lower import Lowered
from windtunnel.workload import Stream, Workload

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic
    from windtunnel.spec import Job

Breakdown = dict[str, float]
"""Seconds by key of `category.STEP_PARTS`; they add up to the step."""

LAST = (Category.PIPELINE_BUBBLE, Category.SLOWER_RANKS, Category.OTHER_STAGES)
"""Waits that come last in a breakdown."""
ONCE = (Category.OPTIMIZER.key, *(
    idle_key(category) for category in (
        Category.STEP_SYNC, Category.CPU_UPDATE, Category.DATA, Category.GRADIENT_REDUCE, Category.PARAMETER_GATHER,
    )
))  # fmt: skip
"""Parts that a step has once, outside of its passes."""
COMPUTING = tuple((int(category), category.key) for category in COMPUTE)
WAITS, LAST_WAITS = (
    tuple((int(category), idle_key(category)) for category in of)
    for of in ([category for category in Category if category not in (*COMPUTE, *LAST)], LAST)
)
"""Columns of an engine's accounts, and the keys of their parts."""
ROUNDING = 1e-9
"""Waits of stages that differ by less of the step are equal."""
ALWAYS = (Category.MATMUL.key, idle_key(Category.PIPELINE_BUBBLE), HOST_PART.key)
"""Keys that a breakdown has even if they are 0."""


@dataclass(frozen=True)
class StepRun:
    """A step that was run: closed form, over a network engine, or of unequal ranks.

    `costs[stage]` and `by_stage[stage]` are those of each pipeline stage (for unequal ranks: of the first group of replicas,
    and means over all drawn steps), `step` its seconds, `peak` the FLOP/s of all GPUs.
    """

    workload: Workload
    costs: tuple[Costs, ...]
    lowered: Lowered
    timeline: Timeline
    memory: tuple[StageMemory, ...]
    by_stage: tuple[Breakdown, ...]
    step: float
    peak: float
    traffic: Traffic | None = None
    """Bytes over a network engine's links."""
    unequal: UnequalResult | None = None
    draw: int | None = None
    """For unequal ranks, the number of the drawn step to which program and timeline belong."""
    folded: bool = False
    """Whether `lowered` and the instances of `timeline` are those of a step of fewer micro batches."""

    @property
    def pacing(self) -> int:
        """The stage that waits least for others, the last of them if several do: it sets the pace."""
        keys = (idle_key(Category.PIPELINE_BUBBLE), idle_key(Category.OTHER_STAGES))
        waits = [sum(stage.get(key, 0.0) for key in keys) for stage in self.by_stage]
        least = min(waits) + ROUNDING * self.step
        return max(stage for stage, seconds in enumerate(waits) if seconds <= least)

    def calls(self) -> Iterator[CallKey]:
        """Every communication call of the step once: inside layers, then between passes."""
        between = (key for counts in self.lowered.calls for key in counts)
        yield from dict.fromkeys((*self.costs[0].call_of.values(), *between))


def breakdown(timeline: Timeline, costs: Costs, rank: int, rounds: float) -> Breakdown:
    """Seconds of one rank's compute stream by category. `rounds`: as `bubble_rounds` says."""
    columns = timeline.busy[rank, int(Stream.COMPUTE)], timeline.idle[rank], timeline.stretch[rank]
    busy, idle, stretch = (column.tolist() for column in columns)
    waited = 1.0 - 1.0 / costs.slowdown
    computing = [busy[c] - stretch[c] for c, _ in COMPUTING]
    parts = {key: seconds * (1.0 - waited) for (_, key), seconds in zip(COMPUTING, computing, strict=True)}
    parts[OVERLAP_SLOWDOWN.key] = float(timeline.stretch[rank].sum())
    parts[SLOWEST_GPU.key] = sum(computing) * waited
    parts |= {key: idle[c] for c, key in WAITS}
    parts[HOST_PART.key] = idle[HOST]
    parts |= {key: idle[c] for c, key in LAST_WAITS}
    parts[idle_key(Category.OTHER_STAGES)] += idle[TAIL] + sum(idle[c] for c, _ in COMPUTING)
    _divide_waits(parts, rounds)
    return {key: seconds for key, seconds in parts.items() if seconds > 0.0 or key in ALWAYS}


def _divide_waits(parts: Breakdown, rounds: float) -> None:
    """Waits for other stages, wherever in the step, into what equal stages would wait too, the share `rounds` of the stage's passes
    (its pipeline bubble: fill and drain), and the rest, which is for stages that take longer."""
    bubble, others = idle_key(Category.PIPELINE_BUBBLE), idle_key(Category.OTHER_STAGES)
    waits = parts[bubble] + parts[others]
    passes = sum(seconds for key, seconds in parts.items() if key not in ONCE) - waits - parts[idle_key(Category.SLOWER_RANKS)]
    parts[bubble] = min(waits, rounds * passes)
    parts[others] = waits - parts[bubble]


def bubble_rounds(job: Job, micro_batches: int) -> float:
    """The bubble of equal stages over all of a stage's passes: (pp - 1) / (micro batches × vpp), Narayanan et al. 2021, section
    2.2. Schedules that split backward passes have less; all that their stages wait is bubble then."""
    return (job.plan.pp - 1) / (micro_batches * job.plan.vpp)
