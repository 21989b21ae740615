"""Megatron-LM's flags that a prediction depends on, and the older spellings of them.

Names from megatron/training/arguments.py of releases 2.x to Core 0.15 and from Megatron-DeepSpeed. A switch takes no value.
"""

from __future__ import annotations

INTEGERS = (
    "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups", "kv-channels", "vocab-size",
    "padded-vocab-size", "make-vocab-size-divisible-by", "seq-length", "max-position-embeddings", "micro-batch-size",
    "global-batch-size",
    "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size", "expert-model-parallel-size",
    "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank", "recompute-num-layers", "num-experts",
    "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers", "train-iters", "train-samples", "ddp-bucket-size",
    "zero-stage", "world-size", "num-distributed-optimizer-instances", "mtp-num-layers",
    "expert-tensor-parallel-size", "moe-ffn-hidden-size", "moe-router-topk", "moe-shared-expert-intermediate-size",
    "moe-router-num-groups", "moe-router-group-topk", "q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim",
    "v-head-dim", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16", "cpu-offloading-num-layers",
)
FLOATS = ("hidden-dropout", "attention-dropout", "moe-expert-capacity-factor", "optimizer-offload-fraction")
STRINGS = (
    "position-embedding-type", "normalization", "fp8-format", "fp4-format", "fp8-recipe", "recompute-granularity",
    "recompute-method", "optimizer", "tokenizer-type", "window-size", "transformer-impl", "data-parallel-sharding-strategy",
    "pipeline-model-parallel-layout",
    "cuda-graph-impl", "spec", "moe-layer-freq", "window-attn-skip-freq", "moe-token-dispatcher-type", "moe-router-score-function",
    "moe-router-dtype", "moe-flex-dispatcher-backend",
)
LISTS = ("recompute-modules", "cp-comm-type", "hierarchical-context-parallel-sizes", "cuda-graph-scope",
         "moe-router-load-balancing-type")
SWITCHES = (
    "swiglu", "squared-relu", "quick-geglu", "disable-bias-linear", "add-qkv-bias", "qk-layernorm", "group-query-attention",
    "untie-embeddings-and-output-weights", "apply-layernorm-1p", "sequence-parallel", "use-distributed-optimizer",
    "use-megatron-fsdp",
    "use-torch-fsdp2", "overlap-grad-reduce", "overlap-param-gather", "tp-comm-overlap", "no-overlap-p2p-communication",
    "overlap-p2p-communication", "fp16", "bf16", "accumulate-allreduce-grads-in-fp32", "grad-reduce-in-bf16",
    "recompute-activations",
    "use-flash-attn", "multi-latent-attention", "no-position-embedding", "no-gradient-accumulation-fusion", "no-bias-gelu-fusion",
    "no-bias-swiglu-fusion", "no-masked-softmax-fusion", "no-rope-fusion", "no-bias-dropout-fusion", "cross-entropy-loss-fusion",
    "enable-cuda-graph", "external-cuda-graph", "embed-layernorm", "deepspeed", "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split", "fp8-hybrid", "fp8-e4m3", "use-rotary-position-embeddings",
    "no-async-tensor-model-parallel-allreduce", "moe-grouped-gemm", "moe-use-legacy-grouped-gemm", "moe-permute-fusion",
    "moe-router-fusion", "moe-router-enable-expert-bias", "moe-shared-expert-overlap", "moe-shared-expert-gate",
    "moe-enable-deepep", "moe-pad-expert-input-to-capacity", "overlap-moe-expert-parallel-comm",
    "fp8-param-gather", "first-last-layers-bf16", "tp-only-amax-red", "cpu-offloading",
    "optimizer-cpu-offload", "overlap-cpu-optimizer-d2h-h2d",
)

KINDS: dict[str, str] = (dict.fromkeys(INTEGERS, "int") | dict.fromkeys(FLOATS, "float") | dict.fromkeys(STRINGS, "str")
                         | dict.fromkeys(LISTS, "list") | dict.fromkeys(SWITCHES, "switch"))

OLD_NAMES = {
    "model-parallel-size": "tensor-model-parallel-size", "intra-layer-model-parallel-size": "tensor-model-parallel-size",
    "inter-layer-model-parallel-size": "pipeline-model-parallel-size", "batch-size": "micro-batch-size",
    "checkpoint-activations": "recompute-full", "full-recompute-activations": "recompute-full",
    "checkpoint-num-layers": "recompute-num-layers", "activations-checkpoint-num-layers": "recompute-num-layers",
    "activations-checkpoint-method": "recompute-method", "activation-checkpoint-method": "recompute-method",
    "position-embeddings-type": "position-embedding-type", "use-rotary-embeddings": "use-rotary-position-embeddings",
    "disable-tp-allreduce-overlap": "no-async-tensor-model-parallel-allreduce", "use-fp8": "fp8-hybrid",
    "rampup-samples": "train-samples", "encoder-num-layers": "num-layers", "encoder-seq-length": "seq-length",
}
"""Earlier spelling: today's."""

KINDS["recompute-full"] = "switch"

LAUNCHER = {"nproc-per-node": "per-node", "nnodes": "nodes", "gpus-per-node": "per-node", "num-gpus": "per-node",
            "num-nodes": "nodes"}
"""torchrun's and deepspeed's own flags, before the training script's name."""
