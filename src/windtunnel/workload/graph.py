"""The graph of a training step: blocks of operators, stages of blocks, and the order in which stages run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import overload

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError
from windtunnel.spec.job import Job
from windtunnel.workload.identity import BlockKey
from windtunnel.workload.ops import OpTable
from windtunnel.workload.optimizers import Matrix
from windtunnel.workload.schedules import SCHEDULES, Order, StagePasses, overlapped_order


@dataclass(frozen=True)
class BlockTensors:
    """A block's tensors, by unit in forward order.

    `weights`: elements of each; `trained`: those that get gradients. `kept`: bytes per micro batch from forward to backward;
    `again`: bytes that recompute brings back.
    """

    weights: tuple[float, ...] = ()
    trained: tuple[float, ...] = ()
    kept: tuple[float, ...] = ()
    again: tuple[float, ...] = ()


@dataclass(frozen=True)
class Block:
    """A repeated part of the model: embedding, decoder layer, head. `key` identifies it, `name` is its label. `forward` and
    `backward` are ranges of rows of `Workload.ops`.

    `parameters` are elements on one GPU before data-parallel sharding, `expert_parameters` those of them that belong to experts;
    `saved` bytes stay per micro batch from forward to backward; `working` bytes live only inside one backward pass (activations
    that recompute brings back). `tensors` are parameters, `saved` and `working` in pieces; `quantised` elements of `parameters` are
    multiplied in low precision. `offloaded` bytes are kept outside the GPU from forward to backward, and are part of `working`.
    `matrices`: number of weights of each shape, if the optimizer needs them. `frozen` elements are not part of `parameters`;
    `frozen_quantised` of them are in low precision. They take memory and are gathered, but have neither gradient nor optimizer
    state. `resident`: bytes of packed weights that no sharding cuts. `replicated`: those of `parameters` whose gradients the ranks
    of a tensor-parallel group sum.
    """

    key: BlockKey
    name: str
    forward: range
    backward: range
    parameters: float
    saved: float
    working: float
    expert_parameters: float = 0.0
    tensors: BlockTensors = BlockTensors()
    quantised: float = 0.0
    frozen: float = 0.0
    frozen_quantised: float = 0.0
    offloaded: float = 0.0
    matrices: tuple[tuple[Matrix, int], ...] = ()
    resident: float = 0.0
    replicated: float = 0.0

    @property
    def elements(self) -> float:
        """All parameters, trained or not."""
        return self.parameters + self.frozen


@dataclass(frozen=True)
class Chunk:
    """A virtual stage: blocks in order, each with its number of repeats."""

    blocks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Workload:
    """One training step on every pipeline stage. Data-parallel replicas are equal and appear once.

    `waits[r]` are rows of the same pass that row r awaits (see `passes.backward`). `stages[s][v]` is virtual stage v of stage s,
    `schedule[s]` the order of its passes, `optimizer[s]` the rows of its update. `boundary` is the bytes of one pipeline transfer
    on one GPU; `stage_parameters[s]` elements on one GPU of stage s, before data-parallel sharding, `stage_experts[s]` those of
    them that belong to experts, `stage_quantised[s]` those multiplied in low precision; `stage_frozen[s]` and
    `stage_frozen_quantised[s]` are further elements that are not trained. `stage_states[s]` are bytes of optimizer state on one
    GPU, without master copies. `root`: blocks outside of the list of layers, which full sharding gathers as one root unit.
    """

    job: Job
    ops: OpTable
    waits: tuple[tuple[int, ...], ...]
    blocks: tuple[Block, ...]
    stages: tuple[tuple[Chunk, ...], ...]
    schedule: Sequence[Order]
    optimizer: tuple[range, ...]
    boundary: float
    stage_parameters: tuple[float, ...]
    stage_experts: tuple[float, ...]
    stage_quantised: tuple[float, ...] = ()
    root: tuple[int, ...] = (0, 2)
    stage_states: tuple[float, ...] = ()
    stage_frozen: tuple[float, ...] = ()
    stage_frozen_quantised: tuple[float, ...] = ()
    stage_resident: tuple[float, ...] = ()

    def resident_bytes(self, stage: int) -> float:
        """Bytes of `stage`'s packed weights that no sharding cuts."""
        return self.stage_resident[stage] if self.stage_resident else 0.0

    def held_weights(self, stage: int) -> tuple[float, float]:
        """Elements of `stage` in low precision, trained or frozen; and all frozen elements."""
        frozen = self.stage_frozen[stage] if self.stage_frozen else 0.0
        narrow = self.stage_frozen_quantised[stage] if self.stage_frozen_quantised else 0.0
        return self.stage_quantised[stage] + narrow, frozen

    def passes(self, stage: int) -> Int64s:
        """[n, 4] the passes of `stage` in order, as `schedules.table` has them; not to be changed."""
        return self.pass_table(stage).actions

    def pass_table(self, stage: int) -> StagePasses:
        """The passes of `stage` and its turns; not to be changed."""
        return self.schedule.tables[stage] if isinstance(self.schedule, Orders) else StagePasses.of(self.schedule[stage])

    def runs(self, stage: int) -> tuple[int, ...]:
        """Micro batches that each virtual stage of `stage` runs in a step: all, or a share of them under DualPipe."""
        return (self.job.micro_batches // self.job.copies,) * len(self.stages[stage])


def executions(workload: Workload, stage: int) -> Floats:
    """Executions of each row on one GPU of a stage in a step."""
    counts = np.zeros(len(workload.ops))
    for chunk, runs in zip(workload.stages[stage], workload.runs(stage), strict=True):
        for index, times in chunk.blocks:
            block = workload.blocks[index]
            for rows in (block.forward, block.backward):
                counts[rows.start : rows.stop] += times * runs
    counts[workload.optimizer[stage].start : workload.optimizer[stage].stop] = 1
    return counts


MOST_PASSES = 400_000
"""Limit of passes in a step, over all pipeline stages: such a step takes a few seconds and a few hundred MB."""


_MOST_KEPT = 20_000
"""Passes of the orders that are kept for other jobs with the same plan: about 2 MB each."""


@lru_cache(maxsize=16)
def _write(
    schedule: str, overlapped: bool, pp: int, vpp: int, micro_batches: int
) -> tuple[tuple[Order, ...], tuple[StagePasses, ...]]:
    """The order of passes on each stage, and their tables."""
    orders = (overlapped_order if overlapped else SCHEDULES[schedule])(pp, vpp, micro_batches)
    return orders, tuple(map(StagePasses.of, orders))


class Orders(Sequence[Order]):
    """The order of passes on each stage of a job, written when it is first read: its length grows with micro batches."""

    def __init__(self, job: Job, micro_batches: int | None = None) -> None:
        """`micro_batches`: of a shorter step with the job's plan."""
        self.job, self.micro_batches = job, job.micro_batches if micro_batches is None else micro_batches

    @cached_property
    def _orders_and_tables(self) -> tuple[tuple[Order, ...], tuple[StagePasses, ...]]:
        plan = self.job.plan
        short = 2 * plan.pp * plan.vpp * self.micro_batches <= _MOST_KEPT
        write = _write if short else _write.__wrapped__
        return write(plan.schedule_name, self.job.runtime.moe_a2a_overlap, plan.pp, plan.vpp, self.micro_batches)

    @property
    def _stages(self) -> tuple[Order, ...]:
        return self._orders_and_tables[0]

    @property
    def tables(self) -> tuple[StagePasses, ...]:
        """The passes of each stage's order."""
        return self._orders_and_tables[1]

    def __len__(self) -> int:
        return self.job.plan.pp

    @overload
    def __getitem__(self, stage: int) -> Order: ...
    @overload
    def __getitem__(self, stage: slice) -> tuple[Order, ...]: ...
    def __getitem__(self, stage: int | slice) -> Order | tuple[Order, ...]:
        return self._stages[stage]

    def __iter__(self) -> Iterator[Order]:
        return iter(self._stages)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Orders) and self.micro_batches == other.micro_batches and self.job == other.job:
            return True
        return isinstance(other, Sequence) and self._stages == tuple(other)

    def __hash__(self) -> int:
        return hash((self.job, self.micro_batches))


def schedule_of(job: Job) -> Orders:
    """The order of passes on each stage. Raises PlanError for a step of more than MOST_PASSES."""
    plan = job.plan
    most = MOST_PASSES // (2 * plan.pp * plan.vpp)
    if job.micro_batches > most:
        raise PlanError(
            "plan.global_batch",
            plan.global_batch,
            f"at most {most:,} micro batches a step of {plan.pp * plan.vpp} (virtual) stages",
            f"This plan has {job.micro_batches:,}: raise plan.micro_batch, or write "
            f"--set plan.global_batch={most * plan.micro_batch * job.dp}.",
        )
    return Orders(job)


def layers_before(job: Job) -> tuple[tuple[int, ...], ...]:
    """Layers before each virtual stage in model order: `[stage][virtual stage]`."""
    counted_layers = [
        pair for parts, ns in zip(job.places, job.layers_per_stage, strict=True) for pair in zip(parts, ns, strict=True)
    ]
    counts = dict(counted_layers)
    before = [0, *accumulate(counts[part] for part in sorted(counts))]
    return tuple(tuple(before[part] for part in parts) for parts in job.places)
