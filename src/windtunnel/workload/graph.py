"""The graph of a training step: blocks of operators, stages of blocks, and the order in which stages run them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from windtunnel.base.errors import PlanError
from windtunnel.spec.job import Job
from windtunnel.workload.identity import BlockKey
from windtunnel.workload.ops import OpTable
from windtunnel.workload.optimizers import Matrix
from windtunnel.workload.schedules import SCHEDULES, Order, overlapped


@dataclass(frozen=True)
class BlockTensors:
    """A block's tensors, by unit in forward order.

    Elements of `weights`, of which `trained` get gradients, bytes `kept` from forward to backward per micro batch, and bytes that
    recompute brings back `again`.
    """

    weights: tuple[float, ...] = ()
    trained: tuple[float, ...] = ()
    kept: tuple[float, ...] = ()
    again: tuple[float, ...] = ()


@dataclass(frozen=True)
class Block:
    """A piece that repeats: embedding, decoder layer, head. `key` says which, `name` is its label. Rows `forward` and `backward`
    index `Workload.ops`.

    `parameters` are elements on one GPU before data-parallel sharding, `expert_parameters` those of them that belong to experts;
    `saved` bytes stay per micro batch from forward to backward; `working` bytes live only inside one backward pass (activations
    that recompute brings back). `tensors` are parameters, `saved` and `working` in pieces; `quantised`
    elements of `parameters` are multiplied in low precision. `offloaded` bytes are kept outside the GPU from forward to backward,
    and are part of `working`. `matrices`: weights by shape and how many, where the optimizer asks. `frozen` elements come on top of
    `parameters`, `frozen_quantised` of them in low precision: they are there and gathered, but have neither gradient nor optimizer
    state.
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

    @property
    def elements(self) -> float:
        """All parameters, trained or not."""
        return self.parameters + self.frozen


@dataclass(frozen=True)
class Chunk:
    """A virtual stage: blocks in order, each with how often it repeats."""

    blocks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Workload:
    """Everything the step does, for every pipeline stage; data-parallel replicas are equal and appear once.

    `waits[r]` are rows of the same pass that row r awaits (see `passes.link`). `stages[s][v]` is virtual stage v of stage s,
    `schedule[s]` the order of its passes, `optimizer[s]` the rows of its update. `boundary` is the bytes of one pipeline transfer
    on one GPU; `stage_parameters[s]` elements on one GPU of stage s, before data-parallel sharding, `stage_experts[s]` those of
    them that belong to experts, `stage_quantised[s]` those multiplied in low precision; `stage_frozen[s]`,
    `stage_frozen_quantised[s]` further elements that are not trained. `stage_states[s]` are bytes of optimizer state on one GPU,
    without master copies. `root` are blocks outside of the list of layers, which full sharding gathers with the whole.
    """

    job: Job
    ops: OpTable
    waits: tuple[tuple[int, ...], ...]
    blocks: tuple[Block, ...]
    stages: tuple[tuple[Chunk, ...], ...]
    schedule: tuple[Order, ...]
    optimizer: tuple[range, ...]
    boundary: float
    stage_parameters: tuple[float, ...]
    stage_experts: tuple[float, ...]
    stage_quantised: tuple[float, ...] = ()
    root: tuple[int, ...] = (0, 2)
    stage_states: tuple[float, ...] = ()
    stage_frozen: tuple[float, ...] = ()
    stage_frozen_quantised: tuple[float, ...] = ()

    def held_weights(self, stage: int) -> tuple[float, float]:
        """Elements of `stage` in low precision, trained or not, and those that are not trained."""
        frozen = self.stage_frozen[stage] if self.stage_frozen else 0.0
        narrow = self.stage_frozen_quantised[stage] if self.stage_frozen_quantised else 0.0
        return self.stage_quantised[stage] + narrow, frozen

    def runs(self, stage: int) -> tuple[int, ...]:
        """Micro batches that each virtual stage of `stage` runs in a step: all, or a copy's share of them."""
        return (self.job.micro_batches // self.job.copies,) * len(self.stages[stage])


MOST_PASSES = 400_000
"""Passes of a step, over all pipeline stages; a few seconds and a few hundred MB."""


def schedule_of(job: Job) -> tuple[Order, ...]:
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
    write = overlapped if job.runtime.moe_a2a_overlap else SCHEDULES[plan.schedule_name]
    return write(plan.pp, plan.vpp, job.micro_batches)


def layers_before(job: Job) -> tuple[tuple[int, ...], ...]:
    """Layers before each virtual stage in model order: `[stage][virtual stage]`."""
    held = [pair for parts, ns in zip(job.places, job.layers_per_stage, strict=True) for pair in zip(parts, ns, strict=True)]
    counts = dict(held)
    before = [0, *accumulate(counts[part] for part in sorted(counts))]
    return tuple(tuple(before[part] for part in parts) for parts in job.places)
