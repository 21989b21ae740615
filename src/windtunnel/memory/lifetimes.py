"""Tensor lifetimes of a pipeline stage: allocations and frees of a process, from its start to the end of its second step.

Fragmentation depends on order: state allocated after the first step fills holes that activations left, so the second step cannot
reuse them. A step is shortened to the passes up to its peak and a few more; the passes after them only free.

A stage's peak memory: state + activations + buffers, then the allocator's overhead, then the driver's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple
from weakref import ref

from windtunnel.base.errors import SpecError
from windtunnel.memory.allocator import settings_of
from windtunnel.memory.buffers import Passes, buffers_of, gather_pool, passes_of
from windtunnel.memory.habits import MemoryHabits, context_bytes, cublas_bytes, habits
from windtunnel.memory.result import USABLE, StageMemory
from windtunnel.memory.state import State, state_of, step_bytes
from windtunnel.memory.tiers import tiers_of
from windtunnel.memory.walk import (
    Needs,
    Peak,
    activation_walk,
    arriving_gradients,
    block_needs,
    chunk_bytes,
    peak_of,
)
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.blocks.quantise import gather_width
from windtunnel.workload.graph import Workload
from windtunnel.workload.ops import OpTable, Stream
from windtunnel.workload.passes.fsdp import blocks_ahead
from windtunnel.workload.schedules import Action, Pass

BEYOND = 4
"""Passes of each virtual stage replayed after the peak; by then the sizes of holes between blocks are stable."""


class TensorContent(IntEnum):
    """The content of a tensor, in the order of a memory picture from bottom to top."""

    WEIGHTS = 0
    GRADIENTS = 1
    OPTIMIZER = 2
    ACTIVATIONS = 3
    TEMPORARY = 4
    BUFFERS = 5


class TensorEvent(NamedTuple):
    """`tensor` is allocated with `size` bytes on `stream`, or freed where `size` is negative. Zero-sized tensors do not appear.

    `content`: its kind; `label`: its name for people; `where`: the pass of the event. `turn` counts passes and updates over both
    steps: -1 before them; with n passes a step, 0 to n - 1 and n for the update of the first step, n + 1 to 2n + 1 in the
    second.
    """

    tensor: int
    size: float
    stream: int
    content: TensorContent
    label: str
    where: str
    turn: int = -1


class _Script:
    """Writes events; tensors are numbers."""

    def __init__(self) -> None:
        self.events: list[TensorEvent] = []
        self.where, self.turn = "start", -1
        self._live: dict[int, tuple[float, int, TensorContent, str]] = {}
        self._next = 0

    def take(self, size: float, content: TensorContent, label: str, stream: int = Stream.COMPUTE) -> int:
        self._next += 1
        if size >= 1.0:
            self._live[self._next] = (size, int(stream), content, label)
            self.events.append(TensorEvent(self._next, size, int(stream), content, label, self.where, self.turn))
        return self._next

    def drop(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            if tensor in self._live:
                size, stream, content, label = self._live.pop(tensor)
                self.events.append(TensorEvent(tensor, -size, stream, content, label, self.where, self.turn))


def lifetimes(workload: Workload, stage: int, whole: bool = False) -> list[TensorEvent]:
    """Events of the fullest GPU of `stage`, in program order; of `whole` steps, or of shortened ones.

    Tensors without a freeing event stay allocated.
    """
    job = workload.job
    habit = habits(job.runtime.framework)
    parameters, experts = workload.stage_parameters[stage], workload.stage_experts[stage]
    narrow, frozen = workload.held_weights(stage)
    state = state_of(job, parameters, experts, narrow, workload.stage_states[stage], frozen, workload.resident_bytes(stage))
    script = _Script()
    _start(script, workload, stage, habit, state)
    player = _Player(script, workload, stage)
    order = list(workload.schedule[stage]) if whole else shorten_order(workload, stage)
    moments = state.optimizer - state.master
    for number, name in enumerate(("first", "second")):
        player.step(order, f"{name} step")
        script.where, script.turn = f"{name} update", script.turn + 1
        temporary = step_bytes(job, parameters, experts)
        _all_at_once(
            script, _spread(workload, stage, habit.flat == "all", temporary), TensorContent.TEMPORARY, "optimizer temporary"
        )
        if habit.lazy_moments and number == 0:
            _all(
                script, _spread(workload, stage, habit.flat == "all", moments / 2.0) * 2, TensorContent.OPTIMIZER, "optimizer state"
            )
        player.drop_gradients()
    return script.events


def shorten_order(workload: Workload, stage: int) -> list[Action]:
    """The stage's passes up to a few after its peak, then backward passes of micro batches that are still in flight."""
    order = list(workload.schedule[stage])
    highest = int(activation_walk(workload, stage).argmax())
    cut = highest + 1 + BEYOND * len(workload.stages[stage])
    begun = {(a.chunk, a.micro_batch) for a in order[:cut]}
    return order[:cut] + [a for a in order[cut:] if a.direction is not Pass.FORWARD and (a.chunk, a.micro_batch) in begun]


def _start(script: _Script, workload: Workload, stage: int, habit: MemoryHabits, state: State) -> None:
    """State and buffers that a process allocates before its first step."""
    job, parameters = workload.job, workload.stage_parameters[stage]
    weights = _spread(workload, stage, False, state.weights, trained=False)
    first = [script.take(size, TensorContent.WEIGHTS, "weights") for size in weights]
    if habit.flat == "all":  # one flat copy; the modules' tensors are views of it
        script.take(state.weights, TensorContent.WEIGHTS, "weights")
        script.drop(first)
    if not _late_gradients(job, habit):
        script.take(state.gradients, TensorContent.GRADIENTS, "gradients")
    master = state.master
    _all(script, _spread(workload, stage, habit.flat == "all", master), TensorContent.OPTIMIZER, "master weights")
    if not habit.lazy_moments:
        _all(
            script,
            _spread(workload, stage, habit.flat == "all", (state.optimizer - master) / 2.0) * 2,
            TensorContent.OPTIMIZER,
            "optimizer state",
        )
    script.take(cublas_bytes(job.cluster.gpu.architecture), TensorContent.BUFFERS, "cuBLAS workspace")
    arriving = workload.boundary if job.plan.pp > 1 else 0.0
    _all(script, [arriving, arriving], TensorContent.BUFFERS, "pipeline receive buffer")
    buffers = buffers_of(workload, stage, habit, parameters)
    script.take(buffers.loss - _early_gathers(workload, stage) - 2.0 * arriving, TensorContent.BUFFERS, "framework buffer")


def _early_gathers(workload: Workload, stage: int) -> float:
    """Bytes of blocks that are gathered while the loss's gradient is computed: those ahead of the last one."""
    if workload.job.runtime.root_unit == "freed":
        return 0.0
    return blocks_ahead(workload, stage) * max(_Player.gathered_bytes(workload, stage).values(), default=0.0)


def _late_gradients(job: Job, habit: MemoryHabits) -> bool:
    """Whether a step's first backward passes allocate gradients, one tensor per parameter, and the end of the step frees them."""
    half = job.runtime.compute_width >= DTYPE_BYTES[job.runtime.gradient_dtype]
    return habit.flat == "none" or habit.flat == "all" and half


def _spread(workload: Workload, stage: int, flat: bool, size: float, trained: bool = True) -> list[float]:
    """`size` bytes in one tensor, or over the stage's parameter tensors by their elements, the `trained` ones or all."""
    if flat:
        return [size]
    blocks = workload.blocks
    elements = [
        count
        for chunk in workload.stages[stage]
        for b, times in chunk.blocks
        for count in (blocks[b].tensors.trained if trained else blocks[b].tensors.weights) * times
    ]
    total = workload.stage_parameters[stage] + (0.0 if trained else workload.held_weights(stage)[1])
    return [size * count / total for count in elements]


def _all(script: _Script, sizes: Sequence[float], content: TensorContent, label: str) -> None:
    for size in sizes:
        script.take(size, content, label)


def _all_at_once(script: _Script, sizes: Sequence[float], content: TensorContent, label: str) -> None:
    script.drop([script.take(size, content, label) for size in sizes])


class _Player:
    """Writes the events of a stage's passes."""

    def __init__(self, script: _Script, workload: Workload, stage: int) -> None:
        self.script, self.boundary = script, workload.boundary
        job, parameters = workload.job, workload.stage_parameters[stage]
        raw, habit = raw_gradient_bytes(job), habits(job.runtime.framework)
        gradients = state_of(job, parameters, workload.stage_experts[stage]).gradients
        self.per_element = gradients / parameters if parameters and _late_gradients(job, habit) else 0.0
        self.updated_at_once = DTYPE_BYTES[job.runtime.gradient_dtype] if job.runtime.optimizer_in_backward else 0.0
        self.elements = [block.tensors.trained for block in workload.blocks]
        needs = block_needs(workload)
        used = {b for chunk in workload.stages[stage] for b, _ in chunk.blocks}
        self.passes: dict[int, Passes] = {b: passes_of(workload, workload.blocks[b], needs[b], raw) for b in used}
        self.names = [block.name for block in workload.blocks]
        self.weights = self.gathered_bytes(workload, stage)
        self.in_flight = 1 + blocks_ahead(workload, stage)
        buffers, early = buffers_of(workload, stage, habit, parameters), _early_gathers(workload, stage)
        largest = max(self.weights.values(), default=0.0)
        self.early = round(early / largest) if largest else 0
        self.at_head = max(0.0, buffers.head - buffers.loss)
        self.in_layers = max(0.0, buffers.layers - buffers.loss + early - self.in_flight * largest)
        self.losses = {b for b in used if needs[b].logits > 0.0}
        self.chunks = [[b for b, times in chunk.blocks for _ in range(times)] for chunk in workload.stages[stage]]
        # outputs of micro batches, if the framework keeps them
        self.outputs = [
            max(0.0, held - sum(needs[b].saved for b in blocks))
            for held, blocks in zip(chunk_bytes(workload, stage, needs), self.chunks, strict=True)
        ]
        self.live: dict[tuple[int, int], list[list[int]]] = {}
        self.late: dict[tuple[int, int], list[int]] = {}  # of backward passes whose second half has not run
        self.raw: list[int] = []
        self.gradients: dict[int, list[int]] = {}  # by virtual stage
        self.ring: list[int] = []

    @staticmethod
    def gathered_bytes(workload: Workload, stage: int) -> dict[int, float]:
        """Bytes of a block's gathered parameters where full sharding gathers and frees them block by block."""
        job = workload.job
        if not job.plan.shards_parameters or job.shard_ranks == 1 or not job.runtime.reshard_after_forward or job.whole_in_step:
            return {}
        layers = {b for chunk in workload.stages[stage] for b, _ in chunk.blocks if b not in workload.root}
        blocks = workload.blocks
        elements = {b: (blocks[b].elements, blocks[b].quantised + blocks[b].frozen_quantised) for b in layers}
        return {b: gather_width(job.runtime, job.runtime.compute_width, *elements[b]) * elements[b][0] for b in layers}

    def step(self, order: Sequence[Action], name: str) -> None:
        """Runs all passes of `order`, then frees what remains except gradients."""
        for action in order:
            key = action.chunk, action.micro_batch
            self.script.turn += 1
            self.script.where = (
                f"{name}, {action.direction.name.lower().replace('_', ' ')} of micro batch {action.micro_batch}, "
                f"virtual stage {action.chunk}"
            )
            if action.direction is Pass.FORWARD:
                kept = [self._forward(block) for block in self.chunks[action.chunk]]
                self.live[key] = [*kept, [self.script.take(self.outputs[action.chunk], TensorContent.ACTIVATIONS, "stage output")]]
            elif action.direction is Pass.WEIGHT_GRADIENT:
                self.script.drop(self.late.pop(key))
            else:
                self._backward(action.chunk, self.live.pop(key))
                if action.direction is Pass.INPUT_GRADIENT:
                    self.late[key] = [
                        self.script.take(size, TensorContent.ACTIVATIONS, f"{self.names[block]} input or gradient of a product")
                        for block in self.chunks[action.chunk]
                        for size in self.passes[block].late
                    ]
        self.script.drop([*self.raw, *self.ring])
        self.raw, self.ring = [], []

    def drop_gradients(self) -> None:
        """Frees gradients after an update; the next step's first backward passes allocate them again."""
        self.script.drop(tensor for tensors in self.gradients.values() for tensor in tensors)
        self.gradients = {}

    def _gather(self, block: int) -> None:
        """Allocates the next block's gathered parameters before those of the block before it are freed."""
        if block in self.weights:
            self.ring.append(self.script.take(self.weights[block], TensorContent.BUFFERS, "gathered parameters", Stream.GATHER))
            while len(self.ring) > self.in_flight:
                self.script.drop([self.ring.pop(0)])

    def _forward(self, block: int) -> list[int]:
        self._gather(block)
        kept: list[int] = []
        passing: list[int] = []
        for size, stays in self.passes[block].forward:
            if stays:
                kept.append(self.script.take(size, TensorContent.ACTIVATIONS, f"{self.names[block]} activation"))
            else:
                output = self.script.take(size, TensorContent.TEMPORARY, f"{self.names[block]} output")
                self.script.drop(passing)
                passing = [output]
        self.script.drop(passing)
        return kept

    def _backward(self, chunk: int, live: list[list[int]]) -> None:
        script = self.script
        script.drop([*self.raw, *live[-1]])
        self.raw = []
        first, accumulated = chunk not in self.gradients, self.gradients.setdefault(chunk, [])
        gradient = script.take(self.boundary, TensorContent.TEMPORARY, "gradient")
        reducing: list[int] = []  # gradients of weights until they are reduced, and what reduces them
        for block, kept in zip(reversed(self.chunks[chunk]), reversed(live[:-1]), strict=True):
            if block in self.losses:
                script.drop(self.ring[: len(self.ring) - self.early])
                del self.ring[: len(self.ring) - self.early]
            elif len(reducing) < 2:
                script.drop(reducing)
                reducing = [script.take(self.in_layers, TensorContent.BUFFERS, "gradients in reduction"), 0]
            self._gather(block)
            passes, name = self.passes[block], self.names[block]
            beside = [script.take(size, TensorContent.TEMPORARY, f"{name} temporary") for size in passes.beside]
            inputs = kept + [script.take(size, TensorContent.TEMPORARY, f"{name} recomputed") for size in passes.again]
            last: list[int] = []
            freed = 0
            for place, size in enumerate(passes.gradients):
                tensor = script.take(size, TensorContent.TEMPORARY, f"{name} gradient")
                script.drop(last)
                last = [tensor]
                upto = place * len(inputs) // len(passes.gradients)  # the gradient has passed these tensors: free them
                script.drop(inputs[len(inputs) - upto : len(inputs) - freed])
                freed = upto
            if first:
                accumulated += [
                    script.take(self.per_element * count, TensorContent.GRADIENTS, f"{name} gradient of weights")
                    for count in self.elements[block]
                ]
            if self.updated_at_once:
                sizes = [self.updated_at_once * count for count in self.elements[block]]
                _all_at_once(script, sizes, TensorContent.GRADIENTS, f"{name} gradient of weights")
            self.raw += [script.take(size, TensorContent.GRADIENTS, f"{name} raw gradient") for size in passes.raw]
            script.drop([*inputs[: len(inputs) - freed], *beside])
            following = script.take(self.boundary, TensorContent.TEMPORARY, "gradient")
            script.drop([*last, gradient])
            gradient = following
            if block in self.losses:
                reducing = [script.take(self.at_head, TensorContent.BUFFERS, "gradient of the head")]
        script.drop([gradient, *reducing])


def memory_of(job: Job, workload: Workload) -> tuple[StageMemory, ...]:
    """Memory of every pipeline stage of `job` in bytes, whose graph is `workload`.

    All ranks of a stage are equal but for rounding. Reserved memory exceeds allocated by `runtime.allocator_overhead`, as far as
    the GPU has room: before it fails, PyTorch's caching allocator gives unused segments back. Raises SpecError for a
    `runtime.alloc_conf` that PyTorch would refuse.
    """
    global _last  # a search asks for the memory first, and then predicts what fits, from a step of fewer micro batches if it can
    before = _last
    if before is not None and before[0] is job and before[1]() is workload.ops:
        return before[2]
    settings_of(job.runtime.alloc_conf)  # raises SpecError for what PyTorch would refuse
    needs = block_needs(workload)
    found = tuple(_stage(job, workload, stage, needs) for stage in range(job.plan.pp))
    _last = (job, ref(workload.ops), found)
    return found


_last: tuple[Job, ref[OpTable], tuple[StageMemory, ...]] | None = None


def _stage(job: Job, workload: Workload, stage: int, needs: tuple[Needs, ...]) -> StageMemory:
    habit = habits(job.runtime.framework)
    parameters, experts = workload.stage_parameters[stage], workload.stage_experts[stage]
    narrow, frozen = workload.held_weights(stage)
    state = state_of(job, parameters, experts, narrow, workload.stage_states[stage], frozen, workload.resident_bytes(stage))
    arriving = arriving_gradients(job, state.gradients, parameters)
    peak = peak_of(workload, stage, needs, raw_gradient_bytes(job), arriving, buffers_of(workload, stage, habit, parameters))
    # Shards of gradients are made on the stream of the reduce-scatter, whose blocks serve no other (torch _fsdp_collectives.py,
    # foreach_reduce; FSDP 1 _runtime_utils.py, _reduce_grad): once made, they stay reserved.
    apart = arriving is not None and not arriving.passing and job.shard_ranks > 1
    held = peak.total + peak.holes + (state.gradients - peak.gradients if apart else 0.0)
    step = step_bytes(job, parameters, experts)
    updated = 0.0 if arriving is None or arriving.passing else state.gradients
    if step + updated > peak.total:  # the update is the peak: activations and most buffers are freed
        peak = Peak(0.0, 0.0, step, updated)
    held = max(held, peak.total) + gather_pool(workload, stage, peak.logits > 0.0)
    if arriving is not None:
        state = replace(state, gradients=peak.gradients)
    workspace = peak.working + cublas_bytes(job.cluster.gpu.architecture)
    allocated = state.total + peak.activations + peak.logits + workspace + peak.buffers
    context = context_bytes(job, habit)
    capacity = float(job.cluster.gpu.memory)
    room = USABLE * capacity - context
    overhead = 1.0 + job.runtime.allocator_overhead
    reserved = max(allocated, min((allocated + held - peak.total) * overhead, room))
    tiers = tiers_of(workload, stage, habit, needs)
    return StageMemory(
        stage=stage,
        weights=state.weights,
        gradients=state.gradients,
        optimizer=state.optimizer,
        activations=peak.activations,
        logits=peak.logits,
        buffers=peak.buffers,
        workspace=workspace,
        context=context,
        fragmentation=reserved - allocated,
        allocated=allocated,
        reserved=reserved,
        total=reserved + context,
        capacity=capacity,
        fits=allocated <= room and all(tier.missing <= 0.0 for tier in tiers),
        tiers=tiers,
    )


def raw_gradient_bytes(job: Job) -> float:
    """Bytes per parameter of compute-precision gradients that live beside the accumulated ones until a backward pass ends."""
    runtime, plan = job.runtime, job.plan
    whole_chunk = habits(runtime.framework).raw_gradients == "chunk"
    if not whole_chunk or plan.shards_parameters or runtime.fused_wgrad or runtime.gradient_dtype == runtime.precision:
        return 0.0
    compute = runtime.compute_width
    return compute if DTYPE_BYTES[runtime.gradient_dtype] > compute else 0.0


def curve(workload: Workload, memory: StageMemory, ends: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Allocated bytes over time: `ends` are the seconds at which the stage's actions end, in schedule order.

    The base is what lives through the step. Raises SpecError if the number of ends differs from that of actions.
    """
    levels = activation_walk(workload, memory.stage)
    if len(ends) != len(levels):
        raise SpecError("ends", len(ends), f"one time for each of the stage's {len(levels)} actions")
    base = memory.weights + memory.gradients + memory.optimizer + memory.buffers
    return ((0.0, base), *((float(t), base + float(level)) for t, level in zip(ends, levels, strict=True)))
