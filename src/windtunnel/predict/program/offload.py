"""Offload copies between a GPU and other memory, and the CPU's update, between the passes of a stage's program.

Copies run on streams of copy engines, with waits to and from computation. Computation that needs the freed GPU memory waits for a
copy out; computation that uses the data waits for a copy back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from windtunnel.compute.cpu import cpu_seconds, update_bytes
from windtunnel.memory.state import gradients_leave
from windtunnel.memory.tiers import HOST_ACHIEVED, host_memory_rate, legs, pool_collective
from windtunnel.predict.category import Category, Task
from windtunnel.predict.program.demands import gathers_in_switch, reduces_in_switch
from windtunnel.predict.program.shards import Held
from windtunnel.predict.program.stage import HOST, Label, Stage
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.machine import Cluster, Place
from windtunnel.workload import Stream
from windtunnel.workload.identity import BlockKind
from windtunnel.workload.passes.optimizer import MOMENTS, shard_elements, updated_parameters
from windtunnel.workload.passes.recompute import windows
from windtunnel.workload.schedules import Action, Pass

TILE = 64 * 2**20
"""Parameters per tile of an offloaded update, so that copies of one tile run beside the update of the next. Assumed; the tiles of
DeepSpeed's CPU-Adam and Megatron-Core's parameter groups are of this order."""

MOST_TILES = 32


def cpu_memory_rate(cluster: Cluster) -> float:
    """B/s of host memory for a GPU's share of its node's CPUs."""
    return host_memory_rate(cluster.node) / HOST_ACHIEVED / cluster.gpus_of_node


class OffloadCopies:
    """The offload of one stage; adds nothing if the plan has no offload."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        job = stage.workload.job
        self.job, self.offload = job, job.plan.offload
        self.of_layers = self.offload.activations > 0
        self.layers = job.layers_per_stage[stage.index]
        blocks, chunks = stage.workload.blocks, stage.workload.stages[stage.index]
        # the embedding, before the first layer
        self.lead = [int(bool(chunk.blocks) and blocks[chunk.blocks[0][0]].key.kind is BlockKind.EMBEDDING) for chunk in chunks]
        self.windows = [windows(min(self.offload.activations, n), n) for n in self.layers]
        self.gate: tuple[int, ...] = ()  # copies that the next computation waits for
        self.last: tuple[int, ...] = ()  # of a pass: its last copy, if it may end beside the next pass
        self.left: dict[
            tuple[int, int, int], tuple[int, ...]
        ] = {}  # by chunk, micro batch, layer: the hops of offloaded activations
        self.fetched: dict[int, int] = {}  # by layer of the current backward pass
        self.computed: tuple[int, ...] = ()
        self.stored: list[int] = []
        self.gradients_away: list[int] = []  # the last copies and sums of gradients
        self.leaves = gradients_leave(job.plan)
        self.active = self.of_layers or self.offload.optimizer != "none"  # whether passes copy anything
        self.gathers_in_switch, self.reduces_in_switch = gathers_in_switch(job), reduces_in_switch(job)

    # -- activations ------------------------------------------------------------------------------------------------

    def before(self, action: Action, position: int) -> tuple[int, ...]:
        """Fetches the activations that are due; returns what the computation of the block at `position` of a virtual stage waits
        for."""
        if not self.of_layers:
            return ()
        if action.direction is Pass.FORWARD:
            gate, self.gate = self.gate, ()
            return gate
        chunk, layer = action.chunk, position - self.lead[action.chunk]
        count = self.layers[chunk]
        due = [
            g
            for g, at in enumerate(self.windows[chunk])
            if g not in self.fetched and (at == layer or layer == count - 1 and at >= count)
        ]
        waits: tuple[int, ...] = ()
        for group in reversed(due):
            waits += (self.fetched[group + 1],) if group + 1 in self.fetched else ()
            self.fetched[group] = self._fetch(chunk, action.micro_batch, group)
        return (*waits, self.fetched[layer]) if 0 <= layer < len(self.windows[chunk]) else waits

    def after(self, action: Action, position: int, done: int) -> None:
        """Copies out the activations that the block's computation (instance `done`) leaves."""
        if not self.of_layers:
            return
        self.computed = (done,)
        chunk, layer = action.chunk, position - self.lead[action.chunk]
        at = self.windows[chunk]
        if action.direction is not Pass.FORWARD:
            if layer == 0:
                self.fetched = {}
            return
        if layer == 0 and at:
            self._leave(chunk, action.micro_batch, 0)
            self.gate, self.last = self.last, ()
        if layer in at:
            group = at.index(layer)
            copy = self.left[chunk, action.micro_batch, group][0]
            if layer + 1 == self.layers[chunk] and self.job.plan.pp > 1:
                self.last = (copy,)
            else:
                self.gate = (*self.gate, copy)
            if group + 1 < len(at):
                self._leave(chunk, action.micro_batch, group + 1)

    def _size(self, chunk: int, layer: int) -> float:
        blocks = self.stage.workload.stages[self.stage.index][chunk].blocks
        flat = [b for b, times in blocks for _ in range(times)]
        return self.stage.workload.blocks[flat[layer + self.lead[chunk]]].offloaded

    def _leave(self, chunk: int, micro_batch: int, layer: int) -> None:
        # two pinned buffers for the disk: a layer is copied out once the layer before the last is on disk
        waits = (*self.computed, *self.stored[-2:-1])
        hops = self.out(self.offload.activations_to, self._size(chunk, layer), waits, micro_batch, chunk)
        self.left[chunk, micro_batch, layer] = hops
        self.stored += hops[1:]

    def _fetch(self, chunk: int, micro_batch: int, layer: int) -> int:
        hops = self.left.pop((chunk, micro_batch, layer))
        ahead = (self.fetched[layer + 2],) if layer + 2 in self.fetched else ()  # the layer whose pinned buffer the disk reads into
        return self.back(
            self.offload.activations_to,
            self._size(chunk, layer),
            (*hops[-1:], *self.computed),
            micro_batch,
            chunk,
            (*hops[-1:], *ahead),
        )

    # -- one copy ---------------------------------------------------------------------------------------------------

    def out(self, place: Place, size: float, waits: Iterable[int], micro_batch: int = -1, chunk: int = -1) -> tuple[int, ...]:
        """Copies `size` bytes out; returns the hops, of which the first frees the GPU's memory."""
        hops: list[int] = []
        ways = ((Task.OFFLOAD, Stream.TO_HOST), (Task.TO_STORAGE, Stream.STORAGE_WRITE))
        for leg, (kind, stream) in zip(legs(self.job.cluster, place, True), ways, strict=False):
            before = (hops[-1],) if hops else tuple(waits)
            hops.append(self._copy((int(kind), micro_batch, chunk), stream, leg.seconds(size), before))
        return tuple(hops)

    def back(
        self,
        place: Place,
        size: float,
        waits: Iterable[int],
        micro_batch: int = -1,
        chunk: int = -1,
        read_waits: Iterable[int] | None = None,
    ) -> int:
        """Copies `size` bytes to the GPU after `waits`; a disk's read starts after `read_waits`. Returns the last hop."""
        hops = legs(self.job.cluster, place, False)
        read_copies: tuple[int, ...] = ()
        for leg in hops[:-1]:
            label = (int(Task.FROM_STORAGE), micro_batch, chunk)
            read_copies = (
                self._copy(label, Stream.STORAGE_READ, leg.seconds(size), tuple(waits if read_waits is None else read_waits)),
            )
        return self._copy((int(Task.FETCH), micro_batch, chunk), Stream.FROM_HOST, hops[-1].seconds(size), (*waits, *read_copies))

    def _copy(
        self, label: Label, stream: Stream, seconds: float, waits: tuple[int, ...], category: Category = Category.OFFLOAD
    ) -> int:
        if self.stage.live is not None and category is Category.OFFLOAD:
            self.stage.live.formula.add("copies of offload")
        return self.stage.run(self.stage.templates.aside(stream, seconds, category), label, waits)

    # -- parameters -------------------------------------------------------------------------------------------------

    def fetch_parameters(self, size: Held, waits: tuple[int, ...]) -> tuple[int, ...]:
        """Fetches this rank's shard of a block's parameters before its gather; none if they are on the GPU."""
        if self.offload.parameters == "none":
            return ()
        plan, runtime = self.job.plan, self.job.runtime
        width = 4.0 if plan.sharding in ("fsdp", "hsdp") and runtime.master_weights else DTYPE_BYTES[runtime.weight_dtype]
        return (self.back(self.offload.parameters, shard_elements(self.job, sum(size), size[1]) * width, waits),)

    def load_gathered(self, size: Held, waits: tuple[int, ...]) -> int:
        """Loads a block's parameters from the pool, gathered by its switches."""
        seconds = self._in_switch(size, self.stage.demands.widths.gathered)
        return self._copy((int(Task.FETCH), -1, -1), Stream.FROM_HOST, seconds, waits)

    def _in_switch(self, size: Held, width: float) -> float:
        cluster, job = self.job.cluster, self.job
        parts = ((size[0], job.shard_ranks), (size[1], job.expert_dp))
        return sum(pool_collective(cluster, elements * width, ranks) for elements, ranks in parts if elements)

    # -- gradients and update ---------------------------------------------------------------------------------------

    def store_reduced(self, size: Held, after: int) -> int:
        """Stores a block's gradients in the pool, added up by its switches."""
        seconds = self._in_switch(size, self.stage.demands.widths.gradient)
        self.gradients_away = [self._copy((int(Task.OFFLOAD), -1, -1), Stream.TO_HOST, seconds, (after,))]
        return self.gradients_away[-1]

    def send_gradients(self, size: Held, after: int) -> None:
        """Copies reduced gradients out, and adds them to those of earlier micro batches, as soon as they are ready."""
        if self.leaves or self.offload.updated_away and self.offload.overlap:
            self._gradients(
                shard_elements(self.job, sum(size), size[1]) if self.job.plan.sharding != "none" else sum(size), (after,)
            )

    def _gradients(self, elements: float, waits: tuple[int, ...]) -> None:
        place = self.offload.optimizer
        if place == "none":
            return
        runtime, share = self.job.runtime, self.offload.optimizer_fraction
        width = DTYPE_BYTES[runtime.reduce_dtype if self.leaves else runtime.gradient_dtype]
        moved = elements * share
        # gradients of NVMe-held state wait in pinned host memory
        copies = self.out("host" if place == "nvme" else place, moved * width, waits)
        self.gradients_away = [copies[-1]]
        if self.leaves and self.job.micro_batches > 1:
            total = 4.0 * moved
            if self.offload.updated_away:
                seconds = cpu_seconds(moved * width + 2.0 * total, cpu_memory_rate(self.job.cluster))
                label = (int(Task.CPU_UPDATE), -1, -1)
                self.gradients_away = [self._copy(label, Stream.CPU, seconds, copies, Category.CPU_UPDATE)]
            else:  # sums of earlier micro batches are read and written
                self.gradients_away = list(self.out(place, total, (self.back(place, total, waits),)))

    def update(self, on_gpu: int, waits: tuple[int, ...]) -> int:
        """The offloaded part of the update in tiles, after `waits`; returns the instances that end with it. `on_gpu`: the GPU's
        part of the update."""
        if self.offload.optimizer == "none":
            return on_gpu
        workload, index = self.stage.workload, self.stage.index
        of_rank = updated_parameters(self.job, workload.stage_parameters[index], workload.stage_experts[index])
        elements = of_rank * self.offload.optimizer_fraction
        if self.offload.updated_away and not self.leaves and not self.offload.overlap:
            self._gradients(of_rank, waits)
        count = min(MOST_TILES, max(1, math.ceil(elements / TILE))) if self.offload.overlap else 1
        begin = (*waits, *self.gradients_away)
        for end in self._tiles(
            count, elements / count, begin
        ):  # one wait after the other, so that each is booked under its category
            on_gpu = self.stage.run(self.stage.templates.nothing(0.0), HOST, (on_gpu, end))
        return on_gpu

    def _tiles(self, count: int, elements: float, begin: tuple[int, ...]) -> tuple[int, ...]:
        """Tiles of the update as a pipeline: fetch the state, update it, write it back."""
        place, runtime = self.offload.optimizer, self.job.runtime
        if place == "none":
            return ()
        state = 4.0 * (MOMENTS[runtime.optimizer] + 1.0) * elements
        width = DTYPE_BYTES[runtime.gradient_dtype]
        ends: tuple[int, ...] = ()
        for _ in range(count):
            if not self.offload.updated_away:  # the state passes through the GPU, whose update kernels are in `on_gpu`
                came = self.back(place, state + (width * elements if self.leaves else 0.0), begin)
                ends = self.out(place, state, (came,))
                continue
            disk_read: tuple[int, ...] = ()
            if place == "nvme":
                disk = legs(self.job.cluster, place, False)[0]
                disk_read = (self._copy((int(Task.FROM_STORAGE), -1, -1), Stream.STORAGE_READ, disk.seconds(state), begin),)
            seconds = cpu_seconds(update_bytes(self.job, width) * elements, cpu_memory_rate(self.job.cluster))
            updated = self._copy((int(Task.CPU_UPDATE), -1, -1), Stream.CPU, seconds, (*begin, *disk_read), Category.CPU_UPDATE)
            ends = (*disk_read, updated)
            if place == "nvme":
                disk = legs(self.job.cluster, place, True)[1]
                ends += (self._copy((int(Task.TO_STORAGE), -1, -1), Stream.STORAGE_WRITE, disk.seconds(state), (updated,)),)
            if self.offload.parameters == "none":
                ends += (self.back("host", elements * DTYPE_BYTES[runtime.weight_dtype], (updated,)),)
        return ends
