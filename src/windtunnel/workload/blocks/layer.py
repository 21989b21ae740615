"""One decoder layer: norms, attention or another mixer, MLP and residuals, in series or in parallel.

Multi-token prediction (DeepSeek-V3, arXiv 2412.19437 section 2.2).

A further layer on the last stage predicts the token after the next one from the main model's output and the next token's embedding.
It shares the main model's embedding and output matrix.
"""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.spec.job import Job
from windtunnel.spec.model import LayerKind
from windtunnel.workload.blocks.adapter import adapt, adapted_units
from windtunnel.workload.blocks.linear import column, replicated_linear
from windtunnel.workload.blocks.loss import LOSSES
from windtunnel.workload.blocks.mlp import mlp
from windtunnel.workload.blocks.moe import moe
from windtunnel.workload.blocks.packed import pack
from windtunnel.workload.blocks.quantise import norm_writes
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.mixer import mixer_of
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit

ROUTER_GRAPH = {
    Role.NORM2: "moe_router",
    Role.ROUTER: "moe_router",
    Role.ROUTING: "moe_router",
    Role.TOKEN_COUNTS: "moe_preprocess",
}
"""Units of an MoE layer that partial CUDA graphs may contain. Shapes of the others depend on routing, so they cannot be captured
(Megatron-Core's transformer_layer.py, `_te_cuda_graph_capture`)."""

SCOPES = {Module.ATTENTION: ("attn",), Module.MAMBA: ("mamba",), Module.MLP: ("mlp",), Module.MOE: ("moe",)}
"""Modules -> the scope of `runtime.graph_scope` that contains all their units."""


def layer(job: Job, kind: LayerKind, wide: bool = False) -> list[Unit]:
    """Units of one decoder layer of that kind on one GPU; `wide`: its products stay in 16 bits.

    A parallel block (Wang and Komatsuzaki 2021) under tp gathers its input once and adds both outputs before one collective: half
    the tensor-parallel communication of a serial block (MegaScale, arXiv:2402.15627 section 3.2; PaLM). Each adapter reads the
    block's input itself.
    """
    if (seen := job.model.seen_in(kind)) is not job.model:
        job = job.model_copy(update={"model": seen})
    mixer = mixer_of(kind.mixer)
    mix: Step = (mixer.module, mixer.write)
    feed: Step = (Module.MOE, moe) if kind.experts else (Module.MLP, mlp)
    steps: list[Step] = []
    if mixer.mixes:
        steps += _residual_block(job, mix, ("norm1", Role.NORM1), "attention post norm", "add1", mixer.reads_norm_once(job.model))
    if kind.feed != "none":
        steps += _residual_block(job, feed, ("norm2", Role.NORM2), "mlp post norm", "add2", not kind.experts)
    if job.model.parallel_block and mixer.mixes and kind.feed != "none":  # attention and MLP share one norm and one residual add
        steps = [steps[0], steps[1], steps[4], steps[5]]
    if job.model.per_layer_dim:
        steps.append((Module.EMBEDDING, per_layer_input))
    units: list[Unit] = []
    shared = (
        job.model.parallel_block
        and job.plan.tp > 1
        and mixer.shares_gather
        and not kind.experts
        and kind.feed != "none"
        and job.model.lora is None
    )
    for module, write in steps:
        outer = write is feed[1] if shared and write in (mix[1], feed[1]) else None
        tape = Tape(job, module, local=kind.local, wide=wide, outer=outer)
        write(tape)
        for unit in tape.units if tape.frozen else ():  # a block may change a unit after it has added it
            unit.freeze()
        pack(tape, adapted_units(tape))
        adapt(tape)
        if write is feed[1]:  # recomputing the whole module keeps its input, which the first unit saves
            for place, unit in enumerate(tape.units):
                part = "moe" if kind.experts else "mlp"  # of `plan.recompute_modules`
                unit.parts += (part,)
                if place and unit.saved:
                    unit.gives[part] = unit.saved
        if tape.outer:  # the MLP's up projection gathers before attention runs; its down projection adds to attention's output
            units[1:1], last = tape.units[:-1], tape.units[-1]
            units.append(last)
        else:
            units += tape.units
    return mark_graphed(units, job.runtime.graph_scope) if job.runtime.graph_scope else units


def mark_graphed(units: list[Unit], scope: tuple[str, ...]) -> list[Unit]:
    """The units, with rows of `scope` marked as launched by CUDA graphs. Rows after a host wait are outside of the graph."""
    for unit in units:
        if {*graphs_of(unit)} & {*scope}:
            unit.forward = [op._replace(graphed=not op.sync) for op in unit.forward]
            unit.backward = [op._replace(graphed=True) for op in unit.backward]
    return units


Step = tuple[Module, Callable[[Tape], None]]


def _residual_block(job: Job, main: Step, before: tuple[str, Role], after: str, add: str, linear: bool) -> list[Step]:
    """A norm, the sub-module, a norm after it if the model has one, and the residual; `linear` as in `norm`."""
    steps: list[Step] = [(main[0], lambda tape: norm(tape, *before, linear)), main]
    if job.model.residual_streams > 1:
        steps.insert(0, (main[0], mix_streams))
    if job.model.post_norms and not job.model.parallel_block:
        steps.append((main[0], lambda tape: norm(tape, after)))
    return [*steps, (main[0], lambda tape: residual(tape, add))]


def graphs_of(unit: Unit) -> tuple[str, ...]:
    """Megatron-Core's graph scopes that may contain a unit; `moe_router` includes the norm before the router."""
    scopes = SCOPES.get(unit.place, ())
    router = unit.graph or ROUTER_GRAPH.get(unit.role, "") if unit.place is Module.MOE else ""
    return (*scopes, router) if router else scopes


def norm(tape: Tape, name: str, role: Role = Role.NONE, linear: bool = False) -> None:
    """Layer or RMS norm over this GPU's tokens; keeps its input. `linear`: only a linear layer reads its output.

    An RMS norm of separate kernels casts its input to fp32 and its result back before it multiplies by the gain (modules of
    transformers and torchtune): autograd keeps the fp32 copy in place of the input, and where the gain is trained that result.
    """
    model, runtime = tape.job.model, tape.job.runtime
    t, h = tape.local_tokens, model.hidden
    gains = h if model.norm == "rmsnorm" else 2 * h
    fused = runtime.fused_norm if model.norm == "layernorm" or runtime.fused_rmsnorm is None else runtime.fused_rmsnorm
    if fused:
        forward, backward, launches = (1.0, norm_writes(tape) if linear else 1.0), (3.0, 1.0), (1, 2)
    elif model.norm == "rmsnorm":  # cast, square, mean, rsqrt, multiply, cast, multiply
        forward, backward, launches = (6.0, 5.0), (10.0, 7.0), (6, 10)
    else:
        forward, backward, launches = (1.0, 1.0), (3.0, 1.0), (1, 3)
    kept: tuple[float, ...] = (float(t * h * tape.width),)
    if not fused and model.norm == "rmsnorm":
        kept = (4.0 * t * h, *(() if tape.frozen else kept))
    unit = Unit(
        name, role, saved=sum(kept), tensors=kept, parameters=gains, replicated=gains * tape.sp, parts=("layernorm",)
    )  # fmt: skip
    unit.forward.append(tape.elementwise(name, Phase.FORWARD, t * h, *forward, launches[0], Kind.NORM, t, h))
    unit.backward.append(tape.elementwise(f"{name} grad", Phase.DGRAD, t * h, *backward, launches[1], Kind.NORM, t, h))
    tape.add(unit)


def residual(tape: Tape, name: str) -> None:
    """Bias, dropout and residual add after attention or MLP."""
    model, runtime = tape.job.model, tape.job.runtime
    elements = tape.local_tokens * model.hidden
    if model.residual_streams > 1:
        spread_streams(tape, name)
        return
    parameters = model.hidden if model.linear_bias else 0
    mask = elements if model.dropout else 0.0
    if runtime.fused_dropout_add:
        tape.pointwise(
            f"{name} bias dropout add" if model.dropout else name,
            elements,
            (2, 1.5 if mask else 1),
            (1.5, 1) if mask else (0, 0),
            saved=mask,
            launches=(1, 1 if mask else 0),
            parameters=parameters,
            replicated=parameters * tape.sp,
            role=Role.BIAS_DROPOUT_ADD if model.dropout else Role.RESIDUAL,
        )
    else:
        kernels = 1 + (1 if model.linear_bias else 0) + (1 if mask else 0)
        tape.pointwise(
            name,
            elements,
            (kernels + 1, kernels),
            (1.5, 1) if mask else (0, 0),
            saved=mask,
            launches=(kernels, 1 if mask else 0),
            parameters=parameters,
            replicated=parameters * tape.sp,
            role=Role.RESIDUAL,
        )
    if model.linear_bias:
        tape.units[-1].backward.append(tape.elementwise(f"{name} bias grad", Phase.WGRAD, elements, 1, 0, kind=Kind.REDUCE))
        tape.units[-1].mark()


def per_layer_input(tape: Tape) -> None:
    """What a layer adds of its own embedding of a token, gated by a product of the hidden state, multiplied to the hidden width and
    normed (transformers' modeling_gemma4.py, Gemma4TextDecoderLayer). Ranks of tp have all of it, as in vLLM."""
    model = tape.job.model
    wide = model.per_layer_dim or 0
    elements, kernels = float(tape.local_tokens * wide), 1 if tape.job.runtime.fused_activation else 2
    replicated_linear(tape, "per-layer gate", model.hidden, wide)
    saved, backward = 2.0 * elements * tape.width, 1 if kernels == 1 else 3
    tape.pointwise("per-layer input", elements, (1 + kernels, kernels), (3, 2), saved=saved, launches=(kernels, backward))
    replicated_linear(tape, "per-layer up", wide, model.hidden)
    norm(tape, "per-layer norm")
    residual(tape, "per-layer add")


def mix_streams(tape: Tape) -> None:
    """Hyper-connections before a sub-module: weights of the streams from all of them (a product to 2 n + n^2 numbers a token, made
    doubly stochastic), and their weighted sum, which the norm reads. Keeps the streams. Source: mHC (arXiv 2512.24880); `hc_pre` of
    DeepSeek-V4's inference/model.py."""
    model = tape.job.model
    streams, elements = model.residual_streams, float(tape.local_tokens * model.hidden)
    outputs = stream_weights(streams)
    unit = Unit("stream mix", saved=streams * elements * tape.width, parameters=outputs * streams * model.hidden + outputs + 3)
    wide, t = streams * model.hidden, tape.local_tokens
    for phase, sizes in ((Phase.FORWARD, (t, outputs, wide)), (Phase.DGRAD, (t, wide, outputs)), (Phase.WGRAD, (outputs, wide, t))):
        rows = unit.forward if phase is Phase.FORWARD else unit.backward
        rows.append(tape.gemm("stream weights", phase, *sizes, dtype=tape.activation_dtype))
    unit.forward.append(tape.elementwise("stream mix", Phase.FORWARD, elements, streams, 1, 2))
    unit.backward.append(tape.elementwise("stream mix grad", Phase.DGRAD, elements, streams + 1, streams, 2))
    tape.add(unit)


def spread_streams(tape: Tape, name: str) -> None:
    """Hyper-connections after a sub-module: the streams mixed among themselves, and its output added to each (`hc_post`)."""
    model = tape.job.model
    streams, elements = model.residual_streams, float(tape.local_tokens * model.hidden)
    tape.pointwise(name, elements, (streams + 1, streams), (2 * streams + 1, streams + 1), role=Role.STREAMS)


def stream_weights(streams: int) -> int:
    """Numbers that weigh `streams` streams for a token: before, after, and among each other."""
    return (2 + streams) * streams


def embedding(job: Job) -> list[Unit]:
    """Token and position embedding. The vocabulary is cut over tp; the sum is all-reduced or, with sequence parallelism,
    scattered."""
    tape = Tape(job, Module.EMBEDDING)
    model = job.model
    h = model.hidden
    positions = model.max_seq * h if model.position == "learned" else 0
    unit = _look_up(tape, "embedding", h)
    unit.parameters += positions
    if positions:
        unit.forward.append(tape.elementwise("position add", Phase.FORWARD, tape.local_tokens * h, 2, 1))
        unit.backward.append(tape.elementwise("position grad", Phase.WGRAD, tape.local_tokens * h, 1, 0.1, 2))
    tape.add(unit)
    if model.per_layer_dim:
        per_layer_inputs(tape)
    if model.embedding_norm:
        norm(tape, "embedding norm")
    if model.dropout:
        elements = tape.local_tokens * h
        tape.pointwise("embedding dropout", elements, (1, 1.5), (1.5, 1), saved=elements)
    if tape.frozen:  # no layer before it is trained either
        for unit in tape.units:
            unit.backward, unit.saved = [], 0.0
    return tape.units


def _look_up(tape: Tape, name: str, wide: int) -> Unit:
    """A table of the vocabulary, cut over tp, that has `wide` numbers for each token."""
    t, size = tape.tokens, tape.tokens * wide * tape.width
    unit = Unit(name, parameters=tape.job.padded_vocab // tape.tp * wide)
    unit.forward.append(tape.elementwise(name, Phase.FORWARD, t * wide, 1, 1, 1 if tape.tp == 1 else 4, Kind.EMBEDDING, t, wide))
    if tape.tp > 1:
        call = Comm.REDUCE_SCATTER if tape.sp else Comm.ALL_REDUCE
        unit.forward.append(tape.comm(f"{name} sum", Phase.FORWARD, call, Axis.TP, size, Stream.TP))
        if tape.sp:
            unit.backward.append(tape.comm(f"{name} gather", Phase.DGRAD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP))
    unit.backward.append(
        Op(
            f"{name} grad",
            Kind.EMBEDDING,
            Phase.WGRAD,
            tape.module,
            tape.activation_dtype,
            m=t,
            n=wide,
            k=tape.job.padded_vocab // tape.tp,
            bytes=t * wide * (tape.width + 2 * tape.grad_width),
            launches=3,
        )
    )
    return unit


def per_layer_inputs(tape: Tape) -> None:
    """Embeddings of a token for all layers, from a table of their own and from a product of the usual embedding that is normed
    layer by layer; their sum is kept for the layers (Gemma4TextModel, get_per_layer_inputs and project_per_layer_inputs)."""
    model, t = tape.job.model, tape.local_tokens
    wide = model.per_layer_width
    tape.add(_look_up(tape, "per-layer embedding", wide))
    replicated_linear(tape, "per-layer projection", model.hidden, wide)
    elements, gains = float(t * wide), model.per_layer_dim or 1
    tape.pointwise(
        "per-layer projection norm",
        elements,
        (1, 1),
        (3, 1),
        saved=elements * tape.width,
        launches=(1, 2),
        kind=Kind.NORM,
        m=t * model.layers,
        n=gains,
        parameters=float(gains),
        replicated=float(gains * tape.sp),
    )
    tape.pointwise("per-layer sum", elements, (2, 1), (1, 1), launches=(2, 1))


def head(job: Job, own_weights: bool = True) -> list[Unit]:
    """Final norm, logits and loss. Without `own_weights` the output matrix belongs to another head on the same GPU."""
    tape = Tape(job, Module.HEAD)
    norm(tape, "final norm", Role.FINAL_NORM)
    LOSSES[job.runtime.cross_entropy](tape, own_weights)
    return tape.units


def further_layer(job: Job, first: bool, decoder: list[Unit]) -> list[Unit]:
    """Units of one such layer, without its head; `decoder`: those of the layer of the model's kind in it. The `first` holds a copy
    of the embedding if another stage has the original."""
    look = embedding(job)
    for unit in look:
        unit.parameters = unit.parameters if first and not job.ends_meet else 0.0
    tape = Tape(job, Module.MTP)
    norm(tape, "embedding norm")
    norm(tape, "hidden norm")
    column(tape, "mtp projection", 2 * job.model.hidden, job.model.hidden, False)
    if tape.tp > 1:  # Megatron gathers the cut outputs, and scatters them over the sequence again
        size = tape.tokens * job.model.hidden * tape.width
        unit = Unit("mtp gather")
        unit.forward.append(tape.comm("mtp gather", Phase.FORWARD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP))
        if tape.sp:
            unit.backward.append(tape.comm("mtp gather grad", Phase.DGRAD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP))
        tape.add(unit)
    return [*look, *tape.units, *decoder]
