"""Job -> workload: writes each distinct block once and says which stage runs it, in which order."""

from __future__ import annotations

from windtunnel.spec.job import Job
from windtunnel.workload.blocks.layer import embedding, head, layer
from windtunnel.workload.graph import Block, Chunk, Tensors, Workload
from windtunnel.workload.ops import Op, OpTable
from windtunnel.workload.passes.backward import backward_rows, forward_rows
from windtunnel.workload.passes.fsdp import sharding_copies
from windtunnel.workload.passes.link import link
from windtunnel.workload.passes.optimizer import optimizer_rows
from windtunnel.workload.passes.recompute import saved_tensors, tensors_again
from windtunnel.workload.schedules import SCHEDULES
from windtunnel.workload.tape import Tape, Unit

EMBEDDING, LAYER, HEAD, KEPT_LAYER = 0, 1, 2, 3
"""Indices of the blocks of a dense decoder; KEPT_LAYER is a layer that does not recompute where only some do."""


def build(job: Job) -> Workload:
    """The graph of one step of `job`, which has passed `spec.check`."""
    plan = job.plan
    tape = Tape(job, "")
    boundary = tape.local_tokens * job.model.hidden * tape.width
    rows: list[Op] = []
    waits: list[tuple[int, ...]] = []

    def block(name: str, units: list[Unit], recompute: str) -> Block:
        parts = []
        parameters = sum(u.parameters for u in units)
        before, again, after = sharding_copies(job, parameters)
        for grouped in ([before, *forward_rows(units)], [again, *backward_rows(units, recompute), after]):
            linked, awaited = link([group for group in grouped if group])
            parts.append(range(len(rows), len(rows) + len(linked)))
            rows.extend(linked)
            waits.extend(awaited)
        kept = saved_tensors(units, recompute, boundary)
        saved = sum(kept)
        working = max(0.0, sum(u.saved for u in units) - saved)
        weights = tuple(u.parameters for u in units if u.parameters)
        return Block(name, parts[0], parts[1], parameters, saved, working,
                     Tensors(weights, kept, tensors_again(units, recompute, working)))

    units = layer(job)
    blocks = [block("embedding", embedding(job), "none"), block("layer", units, plan.recompute), block("head", head(job), "none")]
    recomputed = plan.recompute_layers if plan.recompute != "none" else None
    if recomputed is not None:
        blocks.append(block("kept layer", units, "none"))

    stages = []
    for stage, counts in enumerate(job.layers_per_stage):
        chunks = []
        for virtual, count in enumerate(counts):
            again = count if recomputed is None else min(count, recomputed)
            parts = [(LAYER, again)] if again else []
            if count > again:
                parts.append((KEPT_LAYER, count - again))
            if job.places[stage][virtual] == 0:
                parts.insert(0, (EMBEDDING, 1))
            if job.places[stage][virtual] == plan.pp * plan.vpp - 1:
                parts.append((HEAD, 1))
            chunks.append(Chunk(tuple(parts)))
        stages.append(tuple(chunks))
    schedule = SCHEDULES[plan.schedule_name](plan.pp, plan.vpp, job.micro_batches)
    held = tuple(sum(blocks[b].parameters * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)
    optimizer = []
    for parameters in held:
        linked = optimizer_rows(job, parameters)
        optimizer.append(range(len(rows), len(rows) + len(linked)))
        rows.extend(linked)
        waits.extend(() for _ in linked)
    return Workload(job, OpTable.of(rows), tuple(waits), tuple(blocks), tuple(stages), schedule, tuple(optimizer), boundary, held)
