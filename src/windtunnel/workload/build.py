"""Job -> workload: writes each distinct block once and says which stage runs it, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.job import Job
from windtunnel.spec.mixer import MIXERS
from windtunnel.spec.model import LayerKind, Model
from windtunnel.spec.runtime import Runtime
from windtunnel.workload.blocks.layer import embedding, further_layer, head, layer
from windtunnel.workload.blocks.quantise import amax_history, weight_update
from windtunnel.workload.blocks.vision import encoder, encoder_job
from windtunnel.workload.from_graph import from_graph
from windtunnel.workload.graph import Block, BlockTensors, Chunk, Workload, layers_before, schedule_of
from windtunnel.workload.identity import BlockKey, BlockKind
from windtunnel.workload.ops import Kind, Op, OpTable, Phase
from windtunnel.workload.passes.backward import backward_rows, forward_rows, link
from windtunnel.workload.passes.fsdp import sharding_copies
from windtunnel.workload.passes.optimizer import held_by, matrices_of, state_bytes, update_of, updated_parameters
from windtunnel.workload.passes.recompute import away, saved_bytes, saved_tensors, tensors_again
from windtunnel.workload.tape import Tape, Unit

EMBEDDING, LAYER, HEAD = 0, 1, 2
"""Indices of the blocks that every decoder has; LAYER is the first kind of layer."""

EMBEDDING_KEY, HEAD_KEY = BlockKey(BlockKind.EMBEDDING), BlockKey(BlockKind.HEAD)


def stay_gathered(runtime: Runtime) -> tuple[BlockKey, ...]:
    """Blocks that full sharding gathers for forward and not again: see `passes.fsdp.gathered_for_backward`."""
    freed = runtime.root_unit == "freed" or runtime.reuse_distance is not None
    return (HEAD_KEY,) if freed else (EMBEDDING_KEY, HEAD_KEY)


Repeats = list[tuple[int, int]]
"""Indices of blocks in model order, each with its number of repeats."""

WITHOUT_EXPERTS = (BlockKind.EMBEDDING, BlockKind.LAYER, BlockKind.HEAD, BlockKind.MTP_HEAD)
"""Blocks that are the same whatever the experts' degrees, if they have no experts."""

NOTHING = Op("nothing", Kind.COPY, Phase.DGRAD, launches=0)
"""The backward pass of a frozen block with nothing to train before it: no rows."""


@dataclass(frozen=True)
class WrittenBlock:
    """Rows of a block from row `start` of some table on, with their waits; the `block` there, and as each other job has it."""

    start: int
    rows: tuple[Op, ...]
    waits: tuple[tuple[int, ...], ...]
    block: Block
    others: tuple[Block, ...]


Written = dict[BlockKey, WrittenBlock]
"""Blocks without experts."""


class _Blocks:
    """The operator table and the blocks while they are being built; blocks are looked up by key.

    `others`: jobs with other policies of recompute, each with the same blocks as it has them. `written`: blocks that jobs have
    which differ from these in the experts' degrees only; new ones are added.
    """

    def __init__(self, job: Job, boundary: float, others: Sequence[Job] = (), written: Written | None = None) -> None:
        self.job, self.boundary, self.written = job, boundary, written
        self.others: tuple[tuple[Job, list[Block]], ...] = tuple((other, []) for other in others)
        self.rows: list[Op] = []
        self.waits: list[tuple[int, ...]] = []
        self.blocks: list[Block] = []
        self.index: dict[BlockKey, int] = {}
        self.units: dict[BlockKey, list[Unit]] = {}  # of layers whose activations may be offloaded

    def write(self, key: BlockKey, made: Callable[[], list[Unit]], boundary: float | None = None) -> int:
        """Appends the rows of a block whose input has `boundary` bytes (None: the size of a pipeline transfer); returns its
        index."""
        if self.written is not None and key in self.written:
            return self._copy(self.written[key])
        boundary, units = self.boundary if boundary is None else boundary, made()
        for unit in units:
            unit.mark()
        start = len(self.rows)
        parameters, frozen = sum(u.parameters for u in units), sum(u.frozen for u in units)
        before, _, _ = sharding_copies(self.job, parameters, frozen)
        ahead = self.add(*link(_fill_groups([before, *forward_rows(units)])))
        block = self._block(self.job, key, units, boundary, ahead)
        own = key.layer is not None and key.recompute == self.job.plan.recompute
        for job, blocks in self.others:
            blocks.append(self._block(job, replace(key, recompute=job.plan.recompute), units, boundary, ahead) if own else block)
        if self.job.plan.offload.activations and key.kind is BlockKind.LAYER:
            self.units[key] = units
        if self.written is not None and key.kind in WITHOUT_EXPERTS and not (key.layer and key.layer.experts):
            others = tuple(blocks[-1] for _, blocks in self.others)
            self.written[key] = WrittenBlock(start, tuple(self.rows[start:]), tuple(self.waits[start:]), block, others)
        return self._append(block)

    def _copy(self, known: WrittenBlock) -> int:
        """Appends a block that another job has, too."""
        further = len(self.rows) - known.start
        self.rows += known.rows
        self.waits += known.waits

        def copy_block(block: Block) -> Block:
            ahead, back = (range(rows.start + further, rows.stop + further) for rows in (block.forward, block.backward))
            return replace(block, forward=ahead, backward=back)

        block = copy_block(known.block)
        for (_, blocks), other in zip(self.others, known.others, strict=True):
            blocks.append(block if other is known.block else copy_block(other))
        return self._append(block)

    def _block(self, job: Job, key: BlockKey, units: list[Unit], boundary: float, ahead: range) -> Block:
        """A block of `job` whose forward rows are written."""
        modules = job.plan.recompute_modules
        parameters, frozen = sum(u.parameters for u in units), sum(u.frozen for u in units)
        _, again, after = sharding_copies(job, parameters, frozen, stays=key in stay_gathered(job.runtime))
        rows = backward_rows(units, key.recompute, modules, job.runtime.recompute_stops)
        back = self.add(*link(_fill_groups([again, *rows, after])))
        saved = saved_bytes(units, key.recompute, boundary, modules)
        working = max(0.0, sum(u.saved for u in units) - saved)
        tensors = BlockTensors(
            tuple(u.parameters + u.frozen for u in units if u.parameters or u.frozen),
            tuple(u.parameters for u in units if u.parameters),
            saved_tensors(units, key.recompute, boundary, modules),
            tensors_again(units, key.recompute, modules, working),
        )
        return Block(
            key,
            label_of(key, job),
            ahead,
            back,
            parameters,
            saved,
            working,
            sum(u.expert_parameters for u in units),
            tensors,
            sum(u.quantised for u in units),
            frozen,
            sum(u.frozen_quantised for u in units),
            matrices=tuple(matrices_of(job, units).items()),
            resident=sum(u.resident for u in units),
            replicated=sum(u.replicated for u in units),
        )

    def write_offloaded(self) -> None:
        """Further copies of the layers' blocks, with offloaded activations."""
        for key, units in list(self.units.items()):
            self._append(away(self.blocks[self.index[key]], self.job.plan, units, key.recompute))

    def _append(self, block: Block) -> int:
        self.index[block.key] = len(self.blocks)
        self.blocks.append(block)
        return len(self.blocks) - 1

    def add(self, linked: list[Op], waits: list[tuple[int, ...]]) -> range:
        """Appends rows and their waits; returns their range in the table."""
        self.rows += linked
        self.waits += waits
        return range(len(self.rows) - len(linked), len(self.rows))


def build(job: Job) -> Workload:
    """The graph of one step of `job`, which has passed `spec.check`."""
    global _last  # what an answer shows on demand asks for its job's graph again: timelines, and the memory of each stage
    last = _last
    if last is None or last.job is not job:
        _last = last = from_graph(job, job.model) if isinstance(job.model, GraphModel) else _workload(_blocks(job))
    return last


_last: Workload | None = None


def build_together(jobs: Sequence[Job], written: Written | None = None) -> tuple[Workload, ...]:
    """The graph of each of `jobs`, which differ in `plan.recompute` and `plan.recompute_modules` only: all in one table, in which
    what they share is written once. `shares_units` holds for them. `written`: blocks of calls before, whose jobs differ from these
    in `plan.ep` and `plan.etp` only; those of this one are added."""
    first, *others = jobs
    table = _blocks(first, others, written)
    whole = _workload(table)
    return (whole, *(replace(whole, job=job, blocks=tuple(blocks)) for job, blocks in table.others))


def shares_units(job: Job) -> bool:
    """Whether another policy of recompute would change the layers' backward passes alone: each layer follows the plan's own."""
    if isinstance(job.model, GraphModel) or job.model.vision is not None:
        return False
    return job.plan.recompute_layers is None and not job.plan.offload.activations


def _blocks(job: Job, others: Sequence[Job] = (), written: Written | None = None) -> _Blocks:
    tape = Tape(job)
    return _Blocks(job, tape.local_tokens * job.model.hidden * tape.width, others, written)


def _workload(table: _Blocks) -> Workload:
    """Writes all blocks of the table's job, and says what its stages run."""
    job = table.job
    schedule = schedule_of(job)
    units = cache(partial(layer, job))
    _write_layers(table, units)
    amax = amax_history(job)
    every = [(table.write(BlockKey(BlockKind.AMAX), lambda: amax), 1)] if amax else []
    tail = _write_tail(table, units)
    front = _write_vision(table, job.runtime.compute_width)
    table.write_offloaded()
    stages = _stages(table, front, tail, every)
    blocks = table.blocks

    def sum_by_stage(size: Callable[[Block], float]) -> tuple[float, ...]:
        """A sum over the blocks of each stage."""
        return tuple(sum(size(blocks[b]) * times for chunk in chunks for b, times in chunk.blocks) for chunks in stages)

    parameters_of_stage, experts, narrow = (
        sum_by_stage(lambda b: b.parameters),
        sum_by_stage(lambda b: b.expert_parameters),
        sum_by_stage(lambda b: b.quantised),
    )
    optimizer, states = [], []
    for chunks, parameters, of_experts, quantised in zip(stages, parameters_of_stage, experts, narrow, strict=True):
        owned = held_by(parameters, of_experts, [(blocks[b], times) for chunk in chunks for b, times in chunk.blocks])
        share = parameters and updated_parameters(job, parameters, of_experts) / parameters
        optimizer.append(table.add(*update_of(job, owned, weight_update(job, quantised, quantised * share))))
        states.append(state_bytes(job, owned))
    return Workload(
        job,
        OpTable.of(table.rows),
        tuple(table.waits),
        tuple(blocks),
        stages,
        schedule,
        tuple(optimizer),
        table.boundary,
        parameters_of_stage,
        experts,
        narrow,
        (EMBEDDING, HEAD),
        tuple(states),
        sum_by_stage(lambda b: b.frozen),
        sum_by_stage(lambda b: b.frozen_quantised),
        sum_by_stage(lambda b: b.resident),
    )


UnitsOf = Callable[[LayerKind], list[Unit]]
"""Units of a layer of some kind, written once."""


def _write_layers(table: _Blocks, units: UnitsOf) -> None:
    """Embedding, head and every kind of layer. A layer has a block for each variant that the model uses: with and without
    recompute, in low precision and in 16 bits."""
    job = table.job
    plan, kinds = job.plan, tuple(job.model.kind_counts)
    policies = [plan.recompute] + (["none"] if plan.recompute != "none" and plan.recompute_layers is not None else [])
    table.write(EMBEDDING_KEY, partial(embedding, job))
    for policy in policies:
        for kind in kinds:
            table.write(BlockKey(BlockKind.LAYER, kind, policy), partial(units, kind))
            if len(table.blocks) == HEAD:
                table.write(HEAD_KEY, partial(head, job))
    for kind in kinds if sum(job.runtime.bf16_layers) else ():
        for policy in policies:
            table.write(BlockKey(BlockKind.LAYER, kind, policy, wide=True), partial(layer, job, kind, wide=True))


def _write_tail(table: _Blocks, units: UnitsOf) -> Repeats:
    """Head and MTP layers, all of which are equal but the first."""
    job = table.job
    tail: Repeats = [(HEAD, 1)]
    for number in range(min(job.model.mtp_layers, 2)):
        times, kind = 1 if number == 0 else job.model.mtp_layers - 1, job.model.further_kind
        key = BlockKey(BlockKind.MTP_LAYER, kind, job.plan.recompute, number=number)
        further = table.write(key, partial(further_layer, job, number == 0, units(kind)))
        own_head = table.write(BlockKey(BlockKind.MTP_HEAD, number=number), partial(head, job, own_weights=False))
        tail += [(further, 1), (own_head, 1)] * times
    return tail


def _write_vision(table: _Blocks, width: float) -> Repeats:
    """The vision encoder, which comes before the embedding."""
    job = table.job
    if job.model.vision is None:
        return []
    of = encoder_job(job)
    enters = of.plan.micro_batch * of.plan.seq * of.model.hidden * width
    return [(table.write(key, partial(list, units), enters), times) for key, times, units in encoder(job)]


def _stages(table: _Blocks, front: Repeats, tail: Repeats, every: Repeats) -> tuple[tuple[Chunk, ...], ...]:
    """Blocks of every virtual stage: `front` before the embedding, `tail` after the last layer, `every` at the end of each."""
    job = table.job
    plan, starts = job.plan, layers_before(job)
    block_of = cache(lambda *fields: table.index[_layer_key(*fields)])
    stages = []
    for stage, counts in enumerate(job.layers_per_stage):
        chunks = []
        for virtual, count in enumerate(counts):
            layers = _layers(job, starts[stage][virtual], count)
            parts = [(block, len(list(run))) for block, run in groupby(block_of(*fields) for fields in layers)]
            if job.places[stage][virtual] == 0:
                parts[:0] = [*front, (EMBEDDING, 1)]
            if job.places[stage][virtual] == plan.pp * plan.vpp - 1:
                parts += tail
            chunks.append(Chunk(tuple(parts + every if parts else parts)))
        stages.append(tuple(chunks))
    return tuple(stages)


def _layer_key(kind: LayerKind, recompute: str, wide: bool, offloaded: bool) -> BlockKey:
    return BlockKey(BlockKind.LAYER, kind, recompute, wide, offloaded)


def _layers(job: Job, first: int, count: int) -> Iterator[tuple[LayerKind, str, bool, bool]]:
    """What `_layer_key` takes, of `count` layers from the model's layer `first` on, which are one virtual stage."""
    plan, model = job.plan, job.model
    recomputing = count if plan.recompute_layers is None else plan.recompute_layers
    wide_first, wide_last = job.runtime.bf16_layers
    for nth, kind in enumerate(model.kinds[first : first + count]):
        wide = not wide_first <= first + nth < model.layers - wide_last
        yield kind, plan.recompute if nth < recomputing else "none", wide, nth < plan.offload.activations


def _fill_groups(groups: list[list[Op]]) -> list[list[Op]]:
    """Groups that have rows; one row without work if none has."""
    return [group for group in groups if group] or [[NOTHING]]


LABELS: dict[BlockKind, str] = {
    BlockKind.EMBEDDING: "embedding",
    BlockKind.HEAD: "head",
    BlockKind.AMAX: "amax",
    BlockKind.MTP_LAYER: "mtp layer",
    BlockKind.MTP_HEAD: "mtp head",
    BlockKind.VISION_PATCHES: "vision patches",
    BlockKind.PROJECTOR: "projector",
}
"""Labels of blocks that have only one variant in a model."""


def label_of(key: BlockKey, job: Job) -> str:
    """The label of a block; that of a layer has only the attributes in which layers of the model differ."""
    if key.kind in LABELS or key.layer is None:
        return LABELS.get(key.kind, key.graph)
    if key.kind is BlockKind.VISION_LAYER:
        return f"vision {'local ' if key.layer.local else ''}layer"
    words = ["16-bit"] if key.wide else []
    words += ["kept"] if key.recompute != job.plan.recompute else []
    return " ".join((*words, _layer_label(key.layer, job.model)))


def _layer_label(kind: LayerKind, model: Model) -> str:
    kinds, mixer = model.kind_counts, MIXERS[kind.mixer]
    words = []
    if len({k.mixer for k in kinds}) > 1 and mixer.mixes:
        words.append(mixer.words)
    if mixer.windowed and len({k.local for k in kinds if k.mixer == kind.mixer}) > 1:
        words.append("local" if kind.local else "global")
    if len({k.feed for k in kinds}) > 1 and kind.feed != "none":
        words.append("moe" if kind.experts else "dense" if mixer.mixes else "mlp")
    return " ".join((*words, "layer"))
