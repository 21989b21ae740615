"""Parameters and FLOPs as papers count them, for MFU and HFU."""

from __future__ import annotations

import numpy as np

from windtunnel.spec.job import Job
from windtunnel.spec.model import Model
from windtunnel.workload.blocks.attention import visible
from windtunnel.workload.graph import Workload
from windtunnel.workload.ops import Kind


def parameter_count(model: Model) -> float:
    """Trainable parameters of the unpadded model; tied embeddings count once."""
    h, d = model.hidden, model.dim_per_head
    qkv = (model.heads + 2 * model.groups) * d
    gain = h if model.norm == "rmsnorm" else 2 * h
    layer = h * qkv + (qkv if model.attention_bias else 0) + model.q_heads_dim * h
    layer += h * model.ffn * (3 if model.gated else 2) + gain * (1 if model.parallel_block else 2)
    layer += 2 * d if model.qk_norm else 0
    if model.linear_bias:
        layer += h + h + model.ffn * (2 if model.gated else 1)
    total = model.layers * layer + gain + model.vocab * h * (1 if model.tied_embeddings else 2)
    total += model.max_seq * h if model.position == "learned" else 0
    total += gain if model.embedding_norm else 0
    return float(total)


def model_flops(job: Job, causal: bool = False) -> float:
    """FLOPs of one step that the model needs: forward and backward, no recompute, logits in.

    Korthikanti et al. 2022, eq. 7, generalised to grouped queries and gated MLPs: 6 FLOPs per matrix weight and token, attention
    12 x tokens x keys x width per layer with every key counted, or only the visible ones if `causal`.
    """
    model, plan = job.model, job.plan
    tokens = plan.global_batch * plan.seq
    weights = model.layers * (model.hidden * (model.heads + 2 * model.groups) * model.dim_per_head
                              + model.q_heads_dim * model.hidden + model.hidden * model.ffn * (3 if model.gated else 2))
    weights += model.hidden * model.vocab
    keys = visible(plan.seq, model.window) if causal else float(min(plan.seq, model.window or plan.seq))
    return float(tokens) * (6.0 * weights + 12.0 * model.layers * model.q_heads_dim * keys)


def hardware_flops(workload: Workload) -> float:
    """FLOPs that all GPUs execute in one step: matrix products and attention of forward, recompute and backward.

    Masked halves of fused causal attention are not executed and not counted.
    """
    job = workload.job
    table = workload.ops
    useful = np.where((table.kind == Kind.GEMM) | (table.kind == Kind.ATTENTION) | (table.kind == Kind.ATTENTION_BACKWARD), table.flops, 0.0)
    total = 0.0
    for chunks in workload.stages:
        for chunk in chunks:
            for index, times in chunk.blocks:
                block = workload.blocks[index]
                rows = float(useful[block.forward.start:block.forward.stop].sum() + useful[block.backward.start:block.backward.stop].sum())
                total += rows * times
    return total * job.micro_batches * job.dp * job.plan.tp * job.plan.cp
