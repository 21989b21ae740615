"""Parameters and FLOPs as papers count them, for MFU and HFU."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.job import Job
from windtunnel.spec.model import LayerKind, Lora, Model
from windtunnel.workload.blocks.layer import stream_weights
from windtunnel.workload.blocks.vision import encoder_model
from windtunnel.workload.from_graph import graph_flops
from windtunnel.workload.graph import Workload
from windtunnel.workload.mixer import mixer_of
from windtunnel.workload.ops import Kind, Phase


def parameter_count(model: Model) -> float:
    """Parameters of the unpadded model, without adapters. Tied embeddings count once; MTP layers do not count, as in published
    figures."""
    if isinstance(model, GraphModel):
        return model.parameters
    h = model.hidden
    gain = h if model.norm == "rmsnorm" else 2 * h
    total = _layers(model) + gain + model.vocab * h * (1 if model.tied_embeddings else 2)
    total += model.max_seq * h if model.position == "learned" else 0
    total += gain if model.embedding_norm else 0
    total += _per_layer(model, model.vocab) + (model.per_layer_dim or 0) + (model.layers * gain if model.per_layer_dim else 0)
    return float(total) + vision_parameters(model)


def _per_layer(model: Model, rows: int) -> int:
    """Elements of the matrices of per-layer embeddings: `rows` of their table, its projection, and two in each layer."""
    return model.per_layer_width * (rows + 3 * model.hidden)


def vision_parameters(model: Model) -> float:
    """Parameters of the vision encoder and its projector; 0 without one."""
    vision = model.vision
    if vision is None:
        return 0.0
    h, gain = vision.hidden, vision.hidden if vision.norm == "rmsnorm" else 2 * vision.hidden
    outer = h * (vision.patch_numbers + vision.patch_bias + vision.class_token) + gain * (vision.pre_norm + vision.post_norm)
    outer += vision.positions * h if vision.position == "learned" else 0
    biases = sum((*vision.projector, model.hidden)) if vision.projector_bias else 0
    return float(_layers(encoder_model(model)) + outer + _projector(model) + biases)


def _projector(model: Model) -> int:
    """Elements of the projector's matrices."""
    vision = model.vision
    widths = (vision.merged_width, *vision.projector, model.hidden) if vision else ()
    return sum(a * b for a, b in pairwise(widths))


def _vision_flops(model: Model) -> float:
    """FLOPs for the images of one sequence, counted as in `model_flops`; a frozen encoder runs only forward."""
    vision = model.vision
    if vision is None:
        return 0.0
    encoder = encoder_model(model)
    multiplications = vision.positions * vision.layers * _matrices(encoder, encoder.kinds[0], 1)
    multiplications += vision.patches * vision.patch_numbers * vision.hidden
    keys = sum(
        count * min(vision.positions, encoder.window or vision.positions) if kind.local else count * vision.positions
        for kind, count in encoder.kind_counts.items()
    )
    score = 2.0 * vision.positions * keys * vision.hidden  # queries with keys and probabilities with values, a FLOP pair each
    passes = 2.0 if encoder.frozen else 6.0
    return vision.images * (passes * (multiplications + score) + 6.0 * vision.tokens * _projector(model))


def _layers(model: Model) -> int:
    """Parameters of all layers."""
    gain = model.hidden if model.norm == "rmsnorm" else 2 * model.hidden
    total = 0
    for kind, count in model.kind_counts.items():
        parts = mixer_of(kind.mixer).mixes + (kind.feed != "none")
        norms = gain * (1 if model.parallel_block else parts * (2 if model.post_norms else 1))
        seen = model.seen_in(kind)
        total += count * (_matrices(seen, kind, model.experts or 1) + _small_parameters(seen, kind) + norms)
        if model.residual_streams > 1:
            wide = stream_weights(model.residual_streams)
            total += count * parts * (wide * (model.residual_streams * model.hidden + 1) + 3)
    return total


def active_parameters(model: Model) -> float:
    """As `parameter_count`, but only with the `top_k` experts that a token goes to."""
    idle = sum(kind.experts for kind in model.kinds) * ((model.experts or 1) - model.top_k)
    expert_parameters = model.expert_hidden * model.expert_width * (3 if model.gated else 2) if model.experts else 0
    return parameter_count(model) - idle * expert_parameters


def _small_parameters(model: Model, kind: LayerKind) -> int:
    """Biases and inner norms of a layer."""
    h, wide = model.hidden, 2 if model.gated else 1
    mixer = mixer_of(kind.mixer)
    count = mixer.small_parameters(model) + (h if model.linear_bias and mixer.mixes else 0)
    if model.linear_bias and kind.feed != "none":
        count += (model.experts or 1) * (model.expert_width * wide + h + 1) if kind.experts else model.ffn * wide + h
    return count


def _matrices(model: Model, kind: LayerKind, experts: int) -> int:
    """Elements of a layer's matrices, `experts` of its routed experts counted."""
    wide, h = 3 if model.gated else 2, model.hidden
    mixer = mixer_of(kind.mixer).matrices(model)
    if not kind.experts:
        return mixer + (h * model.ffn * wide if kind.feed == "dense" else 0)
    latent = 2 * h * model.moe_latent if model.moe_latent else 0
    shared = h * ((model.experts or 1) + wide * model.shared_ffn)
    return mixer + latent + shared + wide * experts * model.expert_width * model.expert_hidden


def adapter_parameters(model: Model) -> float:
    """Elements of all adapters; 0 without `model.lora`."""
    return _adapters_of(model, model.experts or 0)


def adapter_parameters_used(model: Model) -> float:
    """As `adapter_parameters`, of which a token sees only those of the experts it goes to."""
    return _adapters_of(model, model.top_k)


def _adapters_of(model: Model, experts: int) -> float:
    if model.lora is None:
        return 0.0
    counts = model.kind_counts.items()
    return float(sum(count * _adapters(model.seen_in(kind), model.lora, kind, experts) for kind, count in counts))


def _adapters(model: Model, lora: Lora, kind: LayerKind, experts: int) -> int:
    """Elements of a layer's adapters, `experts` experts' among them."""
    sides: dict[str, list[tuple[int, int]]] = {"linear_qkv": [], "linear_proj": [], "linear_fc1": [], "linear_fc2": []}
    sides |= mixer_of(kind.mixer).adapter_sides(model, lora.separate)
    if kind.feed == "dense":
        _add_mlp(sides, model, lora.separate, model.hidden, model.ffn)
    if kind.experts and model.shared_ffn:
        _add_mlp(sides, model, lora.separate, model.hidden, model.shared_ffn)
    if kind.experts and lora.experts == "linear":
        for _ in range(experts):
            _add_mlp(sides, model, lora.separate, model.expert_hidden, model.expert_width)
    return lora.rank * sum(a + b for target in lora.targets for a, b in sides[target])


def _add_mlp(sides: dict[str, list[tuple[int, int]]], model: Model, separate: bool, inputs: int, width: int) -> None:
    """Adds the projections of an MLP."""
    if model.gated:
        sides["linear_fc1"] += [(inputs, width)] * 2 if separate else [(inputs, 2 * width)]
    else:
        sides["linear_fc1"].append((inputs, width))
    sides["linear_fc2"].append((width, inputs))


def model_flops(job: Job, causal: bool = False) -> float:
    """FLOPs that the model needs for one step: forward and backward, with logits, without recompute.

    Korthikanti et al. 2022, eq. 7, generalised to grouped and latent attention, gated MLPs and experts: 6 FLOPs per token and
    matrix weight that the token uses (only its own experts); attention 6 x tokens x keys x heads x (key + value width) per layer,
    with every key counted, or only the visible ones if `causal`; Mamba-2's scan 21 x tokens x inner width x state, the delta rule
    24 x tokens x heads x key x value width, as Megatron-LM counts them (training.py, num_floating_point_operations). MTP layers and
    their heads count.
    Frozen weights take 4 FLOPs instead of 6, adapters 6; images take those of their encoder and projector.
    """
    model, plan = job.model, job.plan
    if isinstance(model, GraphModel):
        return graph_flops(model) * job.micro_batches * job.dp
    tokens = plan.global_batch * plan.seq
    weights = model.hidden * model.vocab * (1 + model.mtp_layers) + 2 * model.hidden**2 * model.mtp_layers
    weights += _per_layer(model, 0)
    score = 0.0
    counts = dict(model.kind_counts)
    counts[model.further_kind] = counts.get(model.further_kind, 0) + model.mtp_layers
    for kind, count in counts.items():
        seen = model.seen_in(kind)
        weights += count * _matrices(seen, kind, model.top_k)
        score += mixer_of(kind.mixer).score_flops(seen, count, plan.seq, kind.local, causal)
    images = plan.global_batch * _vision_flops(model)
    if job.has_frozen_weights:
        return float(tokens) * (4.0 * weights + 6.0 * adapter_parameters_used(model) + score) + images
    return float(tokens) * (6.0 * weights + score) + images


def hardware_flops(workload: Workload) -> float:
    """Model FLOPs of one step plus those of recompute, over all GPUs; attention counts every key, as in `model_flops`."""
    job, table = workload.job, workload.ops
    again = np.where(table.phase == Phase.RECOMPUTE, table.flops, 0.0)
    fused = table.kind == Kind.ATTENTION
    every = 4.0 * table.batch[fused] * table.m[fused] * table.n[fused] * table.k[fused]
    if job.cp_blocks:  # a rank's blocks cover only the visible half of the keys
        every = 2.0 * table.flops[fused] / (1.0 if job.plan.cp_balance == "zigzag" else 2.0 - 1.0 / job.plan.cp)
    again[fused] = np.where(table.phase[fused] == Phase.RECOMPUTE, every, 0.0)
    of_block = [float(again[block.backward.start : block.backward.stop].sum()) for block in workload.blocks]
    one_pipeline = 0.0
    for stage, chunks in enumerate(workload.stages):
        for chunk, runs in zip(chunks, workload.runs(stage), strict=True):
            for index, times in chunk.blocks:
                one_pipeline += times * of_block[index] * runs / job.micro_batches
    return model_flops(job) + one_pipeline * job.micro_batches * job.dp * job.plan.tp * job.plan.cp
