"""What the watched answers are asked for: jobs, servers, steps of RL, fabrics and spaces of plans."""

from __future__ import annotations

from typing import Any

SMALL = ["model.layers=4", "plan.global_batch=16"]
TINY = (
    "llama3-8b-8xh100", "model.layers=2", "model.hidden=512", "model.ffn=1024", "model.heads=8", "model.kv_heads=8",
    "model.vocab=4096", "plan.seq=512", "cluster.gpus=16", "plan.dp=8", "plan.tp=2", "plan.global_batch=16", "tokens=1e11",
    "cluster.fabric.leaf_nodes=1",
)  # fmt: skip
RL: dict[str, Any] = {
    "workload": "rl",
    "name": "small",
    "model": "qwen2.5-1.5b",
    "cluster": {"base": "h100-ib", "gpus": 16},
    "rl": {
        "prompts": 64,
        "samples": 4,
        "mini_batch": 32,
        "prompt": "100-300",
        "response": "600~0.8<4096",
        "rollout": {"tp": 1},
    },
}
APART = ["rl.mode=async", "rl.rollout.gpus=8"]
RL_CHANGES: dict[str, list[str]] = {
    "colocated": ["rl.pack_tokens=5000", "rl.critic=true", "rl.offload=all"],
    "split": ["rl.mode=split", "rl.rollout.gpus=8", "rl.turns=3", "rl.tool_tokens=300", "rl.tool_seconds=2.0"],
    "one step off": ["rl.mode=one_step_off", "rl.rollout.gpus=4", "rl.rollout.engine=sglang", "rl.reward_seconds=3.0"],
    "async": [*APART, "rl.sync_every=2", "rl.keep=0.5"],
    "async whole": [*APART, "rl.partial=false", "rl.staleness=0.5", "rl.rollout.pp=2"],
    "colocated mixture": [
        "model=qwen3-30b-a3b",
        "rl.rollout.tp=8",
        "rl.rollout.ep=8",
        "plan.ep=8",
        "rl.samples=2",
        "rl.rollout.weights=fp8",
    ],
    "colocated tight": [
        "rl.rollout.running=4",
        "rl.rollout.step_tokens=512",
        "rl.rollout.memory=0.3",
        "rl.epochs=2",
        "rl.rollout.dp=2",
    ],
}
SERVED: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "vllm": ("llama3.1-8b", "h100-ib", 2, {"isl": "900~1<4000", "osl": "120~1<600", "requests": 60, "concurrency": 24}),
    "sglang": (
        "llama3.1-8b",
        "h100-ib",
        2,
        {"engine": "sglang", "tp": 2, "isl": "900~1<4000", "osl": "120~1<600", "requests": 60, "rate": 9.0},
    ),
    "trtllm": (
        "llama3-70b",
        "h200-ib",
        4,
        {"engine": "trtllm", "tp": 4, "weights": "fp8", "isl": 700, "osl": "90~1<300", "requests": 40},
    ),
    "latent": (
        "deepseek-v3",
        "h200-ib",
        8,
        {"engine": "sglang", "tp": 1, "ep": 8, "dp": 8, "weights": "fp8", "isl": 300, "osl": 40, "requests": 40, "concurrency": 16},
    ),
    "stages": ("llama3-70b", "h100-ib", 8, {"tp": 4, "pp": 2, "isl": 500, "osl": 50, "requests": 30, "concurrency": 12}),
    "mixture": ("qwen3-30b-a3b", "h100-ib", 4, {"tp": 4, "ep": 4, "isl": 500, "osl": 50, "requests": 30, "concurrency": 12}),
    "hybrid": ("qwen3-next-80b-a3b", "h100-ib", 4, {"tp": 4, "isl": 500, "osl": 50, "requests": 30, "concurrency": 12}),
    "window": ("gemma3-27b", "a100-ib", 2, {"tp": 2, "isl": 3000, "osl": 50, "requests": 20, "concurrency": 6}),
    "drafts": (
        "llama3.1-8b",
        "h100-ib",
        1,
        {"isl": 300, "osl": 80, "requests": 30, "concurrency": 12, "speculate": "draft=llama3.2-1b,drafts=3,rate=0.7"},
    ),
    "apart": (
        "llama3.1-8b",
        "h100-ib",
        3,
        {"prefill": "gpus=1,tp=1", "isl": "600~1<2000", "osl": "90~1<300", "requests": 40, "rate": 12.0},
    ),
    "no kernel of its own": ("llama2-13b", "l40s", 4, {"tp": 4, "isl": 400, "osl": 30, "requests": 20, "concurrency": 8}),
    "two nodes": (
        "deepseek-v3",
        "h100-ib",
        16,
        {"tp": 16, "ep": 16, "weights": "fp8", "isl": 300, "osl": 20, "requests": 20, "concurrency": 8},
    ),
}
FABRICS = (
    "fat_tree:k=8,oversubscription=2",
    "fat_tree:k=4,tiers=2",
    "rail:servers=4,leaf_servers=2",
    "hpn",
    "dcn",
    "megascale",
    "dragonfly",
    "dragonfly_plus",
    "torus:sizes=4x4x2",
    "mesh:sizes=3x4",
    "ndim",
    "nvlink",
    "pcie",
)
MACHINES = ("h100-ib", "aws-p5", "dgx-1v", "gb200-nvl72", "tpu-v5p", "mi300x-roce", "a100-pcie")
CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SEARCHED = {
    "dense": (
        ["cluster.gpus=32", "plan.global_batch=32", "runtime.framework=megatron-core", "model.layers=8"],
        {
            "plan.tp": (1, 2, 4),
            "plan.pp": (1, 2),
            "plan.vpp": (1, 2),
            "plan.micro_batch": (1, 2),
            "plan.sharding": ("none", "zero1"),
            "plan.recompute": ("none", "selective", "full"),
            "runtime.overlap_grad_reduce": (False, True),
        },
    ),
    "money": (
        ["cluster.gpus=16", "plan.global_batch=32", "model.layers=8"],
        {
            "plan.tp": (1, 2),
            "plan.pp": (1, 2),
            "plan.recompute": ("none", "full"),
            "plan.sharding": ("fsdp", "zero2"),
            "plan.micro_batch": (1, 2, 4),
        },
    ),
}
PLANS = (
    ("gpt3-175b-64", "plan.offload.activations=2", "plan.offload.optimizer=nvme",
     "plan.offload.parameters=nvme", "plan.global_batch=32"),
    ("llama3-8b-8xh100", "plan.offload.optimizer=host", "plan.offload.gradients=host", "plan.global_batch=16"),
    ("gpt3-175b-64", "plan.sharding=fsdp", "plan.global_batch=64", "plan.vpp=1"),
    ("gpt3-175b-64", "plan.sharding=zero2", "plan.global_batch=64", "plan.vpp=3", "runtime.overlap_p2p=false"),
    ("gpt3-175b-64", "plan.sharding=hsdp", "plan.shard_group=2", "plan.global_batch=64", "plan.schedule=1f1b",
     "plan.vpp=1", "runtime.overlap_p2p=true"),
    ("gpt3-175b-64", "plan.global_batch=512", "plan.vpp=1", "plan.schedule=zb-h1", "runtime.overlap_p2p=true"),
    ("llama2-70b-64xh100", "plan.sharding=zero1", "runtime.overlap_grad_reduce=false",
     "runtime.overlap_param_gather=false", "plan.global_batch=32"),
    ("mixtral-8x7b-64xh100", "plan.global_batch=64", "model.layers=8", "plan.schedule=dualpipe", "plan.pp=4", "plan.vpp=1"),
    ("llama3-8b-8xh100", "runtime.launch=eager", "runtime.launch_blocking=true", "plan.global_batch=16",
     "unequal.jitter.sigma=0.02", "unequal.draws=2"),
    ("deepseek-v3-2048xh800", "plan.global_batch=1024", "model.layers=16"),
)  # fmt: skip
