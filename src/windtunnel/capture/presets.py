"""`python -m windtunnel.capture.presets NAME [--whole]`: a small Llama under a framework, run by `windtunnel profile host NAME`.

`--whole`: parameters are not sharded. Sizes are tiny, since the host's time does not depend on them.
"""

from __future__ import annotations

import os
import sys
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

TOKENS, WIDTH, HEADS, GROUPS, LAYERS, STEPS = 4, 16, 4, 2, 12, 1000


class RmsNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)


class LlamaBlock(nn.Module):
    """Llama's block as torchtitan writes it, with complex rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, width, bias=False) for width in (WIDTH, GROUPS * size, GROUPS * size, WIDTH)
        )
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down, self.first, self.second = nn.Linear(2 * WIDTH, WIDTH, bias=False), RmsNorm(), RmsNorm()

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        y = self.first(x)
        query, key, value = (part(y).view(1, TOKENS, -1, WIDTH // HEADS) for part in (self.query, self.key, self.value))
        query, key = rotate_pairs(query, angles), rotate_pairs(key, angles)
        key, value = (part.repeat_interleave(HEADS // GROUPS, 2) for part in (key, value))
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).contiguous().view(1, TOKENS, -1))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotate_pairs(x: Tensor, angles: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[None, :, None, :]).flatten(3).type_as(x)


class LlamaStack(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(LlamaBlock() for _ in range(blocks))

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, angles)
        return x


def train_fsdp(newer: bool, whole: bool) -> None:
    """FSDP 1, or FSDP 2 where `newer`."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model: Any = LlamaStack(LAYERS).cuda()
    if not whole and newer:
        for part in (*model.blocks, model):
            fully_shard(part, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    elif not whole:
        low = MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16)
        wrapped = ModuleWrapPolicy({LlamaBlock})
        model = FullyShardedDataParallel(model, auto_wrap_policy=wrapped, mixed_precision=low, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    angles = torch.polar(*(torch.ones(TOKENS, WIDTH // HEADS // 2),) * 2).cuda()
    x = torch.randn(1, TOKENS, WIDTH, device="cuda")
    clip = model.clip_grad_norm_ if isinstance(model, FullyShardedDataParallel) else None
    for _ in range(STEPS):
        model(x, angles).sum().backward()
        clip(1.0) if clip is not None else nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS, "vocab_size": 64,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False, attn_implementation="sdpa", use_cache=False))


def train_huggingface(whole: bool) -> None:
    """transformers' Trainer, by accelerate's FSDP 2, or DDP."""
    from transformers import Trainer, TrainingArguments

    os.environ["FSDP_VERSION"] = "2"
    shards = {
        "version": 2,
        "fsdp_version": 2,
        "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
        "reshard_after_forward": True,
    }
    sharded = {} if whole else {"fsdp": "full_shard auto_wrap", "fsdp_config": shards}
    with TemporaryDirectory() as folder:
        asked = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=1, max_steps=STEPS, bf16=True, save_strategy="no", report_to="none",
            logging_steps=100, disable_tqdm=True, **sharded,
        )  # fmt: skip
        tokens = torch.zeros(TOKENS, dtype=torch.long)
        Trainer(model=_llama(), args=asked, train_dataset=[{"input_ids": tokens, "labels": tokens}] * (8 * STEPS)).train()


def train_deepspeed(whole: bool) -> None:
    """ZeRO-3, or ZeRO-1, around transformers' Llama. Thresholds in elements are to a layer as DeepSpeed's own to Llama 3 8B's."""
    import deepspeed
    import torch._dynamo  # before zero.Init changes how tensors are made

    size = 9 * WIDTH * WIDTH / 218e6
    names = {
        "reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": 5e7, "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
    }  # fmt: skip
    scaled = {name: int(size * count) for name, count in names.items() if not whole or not name.startswith("stage3")}
    shards = {"stage": 1} if whole else {"stage": 3, "stage3_param_persistence_threshold": WIDTH}
    settings = {
        "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": shards | scaled,
        "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }  # fmt: skip
    with deepspeed.zero.Init(config_dict_or_path=settings, enabled=not whole):
        model = _llama()
    engine, *_ = deepspeed.initialize(model=model, config=settings, model_parameters=model.parameters())
    tokens = torch.zeros(1, TOKENS, dtype=torch.long, device="cuda")
    for _ in range(STEPS):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


def main(name: str, whole: bool) -> None:
    if name in ("fsdp", "fsdp2"):
        train_fsdp(name == "fsdp2", whole)
    else:
        {"huggingface": train_huggingface, "deepspeed": train_deepspeed}[name](whole)


if __name__ == "__main__":
    main(sys.argv[1], "--whole" in sys.argv)
