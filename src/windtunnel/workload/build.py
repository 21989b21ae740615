"""Job -> workload: writes each distinct block once and says which stage runs it, in which order."""

from __future__ import annotations

from itertools import groupby

from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.job import Job
from windtunnel.spec.model import LayerKind
from windtunnel.workload.blocks.layer import embedding, head, layer
from windtunnel.workload.blocks.mtp import further_layer
from windtunnel.workload.blocks.quantise import amax_history, weight_update
from windtunnel.workload.blocks.vision import encoder, encoder_job
from windtunnel.workload.from_graph import from_graph
from windtunnel.workload.graph import Block, Chunk, Tensors, Workload, layers_before
from windtunnel.workload.ops import Kind, Op, OpTable, Phase
from windtunnel.workload.passes.backward import backward_rows, forward_rows
from windtunnel.workload.passes.fsdp import sharding_copies
from windtunnel.workload.passes.link import link
from windtunnel.workload.passes.offload import away
from windtunnel.workload.passes.optimizer import held_by, matrices_of, state_bytes, update_of, updated_parameters
from windtunnel.workload.passes.recompute import saved_bytes, saved_tensors, tensors_again
from windtunnel.workload.schedules import SCHEDULES, overlapped
from windtunnel.workload.tape import Tape, Unit

EMBEDDING, LAYER, HEAD = 0, 1, 2
"""Indices of the blocks that every model has; LAYER is the first kind of layer. Other kinds of layers come after them, then layers
that do not recompute where only some do, then those in 16 bits, then those that predict further tokens, then those whose tensors
leave."""

MIXERS = {"attention": "attention", "mamba": "mamba", "linear": "linear attention"}
"""What layers are called by what mixes their tokens."""

NOTHING = Op("nothing", Kind.COPY, Phase.DGRAD, launches=0)
"""The pass of a block that has none: a frozen one with nothing to train before it."""


class _Rows:
    """The operator table while it is written."""

    def __init__(self, job: Job, boundary: float) -> None:
        self.job, self.boundary = job, boundary
        self.rows: list[Op] = []
        self.waits: list[tuple[int, ...]] = []
        self.away: dict[str, Block] = {}  # by block's name: the same with tensors that leave

    def block(self, name: str, units: list[Unit], recompute: str, boundary: float | None = None) -> Block:
        """Writes the forward and backward rows of a block, whose input has `boundary` bytes (left out: a transfer's)."""
        boundary = self.boundary if boundary is None else boundary
        parts = []
        modules = self.job.plan.recompute_modules
        parameters = sum(u.parameters for u in units)
        frozen = sum(u.frozen for u in units)
        before, again, after = sharding_copies(self.job, parameters, frozen)
        for grouped in ([before, *forward_rows(units)], [again, *backward_rows(units, recompute, modules), after]):
            parts.append(self.add(*link([group for group in grouped if group] or [[NOTHING]])))
        saved = saved_bytes(units, recompute, boundary, modules)
        whole = sum(u.saved for u in units)
        experts = sum(u.expert_parameters for u in units)
        working = max(0.0, whole - saved)
        tensors = Tensors(
            tuple(u.parameters + u.frozen for u in units if u.parameters or u.frozen),
            tuple(u.parameters for u in units if u.parameters),
            saved_tensors(units, recompute, boundary, modules),
            tensors_again(units, recompute, modules, working),
        )
        narrow, still = sum(u.quantised for u in units), sum(u.frozen_quantised for u in units)
        made = Block(
            name,
            parts[0],
            parts[1],
            parameters,
            saved,
            working,
            experts,
            tensors,
            narrow,
            frozen,
            still,
            matrices=tuple(matrices_of(self.job, units).items()),
        )
        if self.job.plan.offload.activations:
            self.away[name] = away(made, self.job.plan, units, recompute)
        return made

    def add(self, linked: list[Op], waits: list[tuple[int, ...]]) -> range:
        """Appends rows and what they wait for; returns their place."""
        self.rows += linked
        self.waits += waits
        return range(len(self.rows) - len(linked), len(self.rows))


def build(job: Job) -> Workload:
    """The graph of one step of `job`, which has passed `spec.check`."""
    plan, model = job.plan, job.model
    if isinstance(model, GraphModel):
        return from_graph(job, model)
    tape = Tape(job, "")
    boundary = tape.local_tokens * model.hidden * tape.width
    table = _Rows(job, boundary)
    recomputed = plan.recompute_layers if plan.recompute != "none" else None

    units = {kind: layer(job, kind) for kind in model.kind_counts}
    first, *others = units
    blocks = [
        table.block("embedding", embedding(job), "none"),
        table.block(_name(model.kind_counts, first), units[first], plan.recompute),
        table.block("head", head(job), "none"),
    ]
    place = {first: LAYER}
    for kind in others:
        place[kind] = len(blocks)
        blocks.append(table.block(_name(model.kind_counts, kind), units[kind], plan.recompute))
    kept = {}
    for kind in units if recomputed is not None else ():
        kept[kind] = len(blocks)
        blocks.append(table.block(f"kept {_name(model.kind_counts, kind)}", units[kind], "none"))
    wide = {}  # the same layers with products in 16 bits
    first_wide, last_wide = job.runtime.bf16_layers
    for kind in units if first_wide + last_wide else ():
        for index in (place[kind], *([kept[kind]] if kept else [])):
            wide[index] = len(blocks)
            blocks.append(
                table.block(
                    f"16-bit {blocks[index].name}", layer(job, kind, wide=True), plan.recompute if index == place[kind] else "none"
                )
            )
    history = []
    if amax := amax_history(job):
        history = [(len(blocks), 1)]
        blocks.append(table.block("amax", amax, "none"))
    tail = [(HEAD, 1)]
    for number in range(min(model.mtp_layers, 2)):  # all but the first are equal
        times = 1 if number == 0 else model.mtp_layers - 1
        further = table.block("mtp layer", further_layer(job, number == 0), plan.recompute)
        blocks += [further, table.block("mtp head", head(job, own_weights=False), "none")]
        tail += [(len(blocks) - 2, 1), (len(blocks) - 1, 1)] * times

    front = []
    if model.vision is not None:
        of = encoder_job(job)
        enters = of.plan.micro_batch * of.plan.seq * of.model.hidden * tape.width
        for name, times, written in encoder(job):
            policy = plan.recompute if name.endswith("layer") and not of.model.frozen else "none"
            front.append((len(blocks), times))
            blocks.append(table.block(name, written, policy, enters))
    leaves = {}
    if plan.offload.activations:
        for index in (*place.values(), *kept.values(), *wide.values()):
            leaves[index] = len(blocks)
            blocks.append(table.away[blocks[index].name])

    stages = []
    starts = layers_before(job)
    for stage, counts in enumerate(job.layers_per_stage):
        chunks = []
        for virtual, count in enumerate(counts):
            kinds = model.kinds[starts[stage][virtual] : starts[stage][virtual] + count]
            again = count if recomputed is None else min(count, recomputed)
            layers = [place[kind] for kind in kinds[:again]] + [kept[kind] for kind in kinds[again:]]
            place_in_model = range(starts[stage][virtual], starts[stage][virtual] + count)
            layers = [
                index if first_wide <= at < model.layers - last_wide else wide[index]
                for at, index in zip(place_in_model, layers, strict=True)
            ]
            layers[: plan.offload.activations] = [leaves[index] for index in layers[: plan.offload.activations]]
            parts = _runs(layers)
            if job.places[stage][virtual] == 0:
                parts[:0] = [*front, (EMBEDDING, 1)]
            if job.places[stage][virtual] == plan.pp * plan.vpp - 1:
                parts += tail
            chunks.append(Chunk(tuple(parts + history if parts else parts)))
        stages.append(tuple(chunks))
    write = overlapped if job.runtime.moe_a2a_overlap else SCHEDULES[plan.schedule_name]
    schedule = write(plan.pp, plan.vpp, job.micro_batches)
    held = tuple(sum(blocks[b].parameters * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)
    experts = tuple(sum(blocks[b].expert_parameters * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)
    narrow = tuple(sum(blocks[b].quantised * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)
    frozen = tuple(sum(blocks[b].frozen * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)
    still = tuple(sum(blocks[b].frozen_quantised * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)
    optimizer, states = [], []
    for parts_of, parameters, of_experts, quantised in zip(stages, held, experts, narrow, strict=True):
        whole = held_by(parameters, of_experts, [(blocks[b], times) for chunk in parts_of for b, times in chunk.blocks])
        updated = parameters and updated_parameters(job, parameters, of_experts) / parameters
        optimizer.append(table.add(*update_of(job, whole, weight_update(job, quantised, quantised * updated))))
        states.append(state_bytes(job, whole))
    return Workload(
        job,
        OpTable.of(table.rows),
        tuple(table.waits),
        tuple(blocks),
        tuple(stages),
        schedule,
        tuple(optimizer),
        boundary,
        held,
        experts,
        narrow,
        (EMBEDDING, HEAD),
        tuple(states),
        frozen,
        still,
    )


def _runs(layers: list[int]) -> list[tuple[int, int]]:
    """Layers as (block, how many in a row)."""
    return [(block, len(list(run))) for block, run in groupby(layers)]


def _name(kinds: dict[LayerKind, int], kind: LayerKind) -> str:
    """What a layer is called: only by what tells it from others of the model."""
    words = []
    if len({k.mixer for k in kinds}) > 1 and kind.mixer != "none":
        words.append(MIXERS[kind.mixer])
    if kind.mixer == "attention" and len({k.local for k in kinds if k.mixer == "attention"}) > 1:
        words.append("local" if kind.local else "global")
    if len({k.feed for k in kinds}) > 1 and kind.feed != "none":
        words.append("moe" if kind.experts else "dense" if kind.mixer != "none" else "mlp")
    return " ".join((*words, "layer"))
