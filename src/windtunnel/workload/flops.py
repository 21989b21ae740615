"""Parameters and FLOPs as papers count them, for MFU and HFU."""

from __future__ import annotations

import numpy as np

from windtunnel.spec.job import Job
from windtunnel.spec.model import Model
from windtunnel.workload.blocks.attention import visible
from windtunnel.workload.graph import Workload
from windtunnel.workload.ops import Kind, Phase


def parameter_count(model: Model) -> float:
    """Trainable parameters of the unpadded model; tied embeddings count once."""
    h, d = model.hidden, model.dim_per_head
    gain = h if model.norm == "rmsnorm" else 2 * h
    layer = _layer_matrices(model) + (_qkv_width(model) if model.attention_bias else 0) + gain * (1 if model.parallel_block else 2)
    layer += 2 * d if model.qk_norm else 0
    if model.linear_bias:
        layer += h + h + model.ffn * (2 if model.gated else 1)
    total = model.layers * layer + gain + model.vocab * h * (1 if model.tied_embeddings else 2)
    total += model.max_seq * h if model.position == "learned" else 0
    total += gain if model.embedding_norm else 0
    return float(total)


def _qkv_width(model: Model) -> int:
    return (model.heads + 2 * model.groups) * model.dim_per_head


def _layer_matrices(model: Model) -> int:
    """Elements of a layer's matrices: query, key and value, attention output, MLP."""
    return model.hidden * (_qkv_width(model) + model.q_heads_dim + model.ffn * (3 if model.gated else 2))


def model_flops(job: Job, causal: bool = False) -> float:
    """FLOPs of one step that the model needs: forward and backward, no recompute, logits in.

    Korthikanti et al. 2022, eq. 7, generalised to grouped queries and gated MLPs: 6 FLOPs per matrix weight and token, attention
    12 x tokens x keys x width per layer with every key counted, or only the visible ones if `causal`.
    """
    model, plan = job.model, job.plan
    tokens = plan.global_batch * plan.seq
    weights = model.layers * _layer_matrices(model) + model.hidden * model.vocab
    keys = visible(plan.seq, model.window) if causal else float(min(plan.seq, model.window or plan.seq))
    return float(tokens) * (6.0 * weights + 12.0 * model.layers * model.q_heads_dim * keys)


def hardware_flops(workload: Workload) -> float:
    """Model FLOPs of one step plus what recompute runs again, over all GPUs; attention counts every key, as in `model_flops`."""
    job, table = workload.job, workload.ops
    again = np.where(table.phase == Phase.RECOMPUTE, table.flops, 0.0)
    fused = table.kind == Kind.ATTENTION
    again[fused] = np.where(
        table.phase[fused] == Phase.RECOMPUTE, 4.0 * table.batch[fused] * table.m[fused] * table.n[fused] * table.k[fused], 0.0
    )
    one_pipeline = 0.0
    for stage, chunks in enumerate(workload.stages):
        for chunk, runs in zip(chunks, workload.runs(stage), strict=True):
            for index, times in chunk.blocks:
                rows = workload.blocks[index].backward
                one_pipeline += times * float(again[rows.start : rows.stop].sum()) * runs / job.micro_batches
    return model_flops(job) + one_pipeline * job.micro_batches * job.dp * job.plan.tp * job.plan.cp
