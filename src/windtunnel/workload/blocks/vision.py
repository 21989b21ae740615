"""Vision encoder before a decoder, on the first pipeline stage: patches, layers with full attention over an image, merge,
projector.

As in Megatron-LM's multimodal LLaVAModel: the encoder is sharded over tp like the decoder, every context-parallel rank encodes
all images, and image tokens replace placeholders among the text's embeddings. The encoder stays in 16 bits. A frozen encoder runs
only forward and keeps no activations.
"""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.spec.job import Job
from windtunnel.spec.model import Model
from windtunnel.workload.blocks.layer import layer, norm
from windtunnel.workload.blocks.linear import column, replicated_linear, row
from windtunnel.workload.blocks.mlp import activation
from windtunnel.workload.identity import BlockKey, BlockKind, Module, Role
from windtunnel.workload.ops import Kind, Phase
from windtunnel.workload.tape import Tape, Unit, without_phase


def encoder_model(model: Model) -> Model:
    """The encoder's layers as a model. Raises SpecError without `model.vision`."""
    vision = model.vision
    if vision is None:
        raise SpecError("model.vision", Nothing(), "a vision encoder")
    pattern = f"L{vision.global_every - 1}G" if vision.global_every > 1 else "L"
    fields: dict[str, Any] = {
        name: getattr(vision, name) for name in ("layers", "hidden", "heads", "ffn", "activation", "norm", "linear_bias", "window")
    }
    return Model(
        name="vision",
        vocab=1,
        position="rope" if vision.position == "rope" else "none",
        causal=False,
        window_pattern=pattern if vision.window else None,
        frozen=vision.frozen or model.lora is not None,
        **fields,
    )


def encoder_job(job: Job, tokens: int = 0) -> Job:
    """The encoder as a job, whose sequences are images of `tokens` each (0: the number of positions in its layers)."""
    model, vision = encoder_model(job.model), job.model.vision
    if vision is None:
        return job
    seq, batch = tokens or vision.positions, job.plan.micro_batch * vision.images
    parallel = job.plan.sequence_parallel and seq * batch % job.plan.tp == 0
    plan = job.plan.model_copy(update={"seq": seq, "micro_batch": batch, "cp": 1, "document": None, "sequence_parallel": parallel})
    return job.model_copy(update={"model": model, "plan": plan})


def encoder(job: Job) -> list[tuple[BlockKey, int, list[Unit]]]:
    """(key, repeats, units) of the blocks before the decoder's embedding; a trained encoder recomputes as the plan says."""
    of = encoder_job(job)
    recompute = "none" if of.model.frozen else job.plan.recompute
    blocks = [(BlockKey(BlockKind.VISION_PATCHES, wide=True), 1, _patches(job, of))]
    for kind, count in of.model.kind_counts.items():
        blocks.append((BlockKey(BlockKind.VISION_LAYER, kind, recompute, wide=True), count, layer(of, kind, wide=True)))
    if of.model.frozen:
        for _, _, units in blocks:
            for unit in units:
                unit.backward, unit.saved, unit.tensors, unit.gives = [], 0.0, (), {}
    return [*blocks, (BlockKey(BlockKind.PROJECTOR, wide=True), 1, _projector(job, of))]


def _patches(job: Job, of: Job) -> list[Unit]:
    """From pixels to tokens: one product for all patches, position embeddings, the first norm."""
    vision, tape = job.model.vision, Tape(of, Module.VISION, wide=True)
    if vision is None:
        return []
    replicated_linear(tape, "patch embedding", vision.patch_numbers, vision.hidden)
    unit = tape.units[-1]
    unit.backward = without_phase(unit.backward, Phase.DGRAD)  # pixels have no gradient
    extra = vision.hidden * (vision.patch_bias + vision.class_token)
    elements = float(tape.local_tokens * vision.hidden)
    if vision.position == "learned":
        tape.pointwise("patch positions", elements, (2, 1), (1, 0), parameters=float(vision.positions * vision.hidden + extra))
    elif extra:
        tape.pointwise("patch bias", elements, (1, 1), (1, 0), parameters=float(extra))
    if vision.pre_norm:
        norm(tape, "vision pre norm")
    return tape.units


def _projector(job: Job, of: Job) -> list[Unit]:
    """Final norm, merge of neighbouring patches, MLP to the decoder's width, and the copy of image tokens into the text."""
    vision, h = job.model.vision, job.model.hidden
    if vision is None:
        return []
    outer = Tape(of, Module.PROJECTOR, wide=True)
    if vision.post_norm:
        norm(outer, "vision post norm")
    side = encoder_job(job, vision.tokens)
    frozen = job.model.lora is not None
    side = side.model_copy(update={"model": side.model.model_copy(update={"frozen": frozen, "activation": "gelu"})})
    tape = Tape(side, Module.PROJECTOR, wide=True)
    if vision.merge > 1:
        inputs, merged = float(vision.patches // vision.tokens * vision.hidden), float(vision.merged_width)
        tape.pointwise("merge patches", float(tape.local_tokens), (inputs, merged), (merged, inputs), kind=Kind.COPY)
    _mlp(tape, [vision.merged_width, *vision.projector, h], vision.projector_bias)
    if of.model.frozen:  # nothing before the projector needs a gradient
        for unit in outer.units:
            unit.backward, unit.saved = [], 0.0
        first = next(unit for unit in tape.units if unit.role is Role.PROJECTOR)
        first.backward = without_phase(first.backward, Phase.DGRAD)
    text = Tape(job, Module.PROJECTOR)
    text.pointwise("image tokens in place", float(text.local_tokens * h), (2, 1), (1, 1), kind=Kind.COPY)
    return [*outer.units, *tape.units, *text.units]


def _mlp(tape: Tape, widths: list[int], bias: bool) -> None:
    """Products between `widths` with GELU between them; the last two are sharded over tp like an MLP, those before are
    replicated."""
    while len(widths) > 3 or len(widths) == 2:
        replicated_linear(tape, f"projector {widths[1]}", widths[0], widths[1], role=Role.PROJECTOR)
        tape.units[-1].parameters += widths[1] if bias else 0
        if len(widths) == 2:
            return
        activation(tape, tape.local_tokens * widths[1])
        widths = widths[1:]
    column(tape, "projector up", widths[0], widths[1], bias, role=Role.PROJECTOR)
    activation(tape, tape.tokens * (widths[1] // tape.tp))
    row(tape, "projector down", widths[1], widths[2])
    tape.units[-1].parameters += widths[2] if bias else 0
