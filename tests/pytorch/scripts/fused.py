"""A layer of Transformer Engine's modules with tensor and sequence parallelism, and flash-attn: neither is installed."""

import sys

import torch
import torch.distributed as dist
from flash_attn import flash_attn_func

from windtunnel.capture.stand_ins import PACKAGES

sys.path.append(str(PACKAGES))  # Transformer Engine stands in by itself where Megatron-Core is installed
import transformer_engine.pytorch as te  # noqa: E402
from transformer_engine.common.recipe import Float8CurrentScaling  # noqa: E402
from transformer_engine.pytorch.optimizers import FusedAdam  # noqa: E402

TOKENS, WIDTH, WIDE, HEADS = 64, 256, 1024, 4


class Layer(torch.nn.Module):
    def __init__(self, group):
        super().__init__()
        parallel = {
            "bias": False, "sequence_parallel": True, "tp_group": group, "tp_size": 2, "params_dtype": torch.bfloat16,
            "fuse_wgrad_accumulation": True,
        }  # fmt: skip
        self.up = te.LayerNormLinear(WIDTH, WIDE, normalization="RMSNorm", parallel_mode="column", **parallel)
        self.down = te.Linear(WIDE, WIDTH, parallel_mode="row", **parallel)

    def forward(self, x):
        x = x + self.down(torch.relu(self.up(x)))
        heads = x.transpose(0, 1).unflatten(-1, (HEADS, -1))
        return flash_attn_func(heads, heads, heads, causal=True).flatten(-2)


dist.init_process_group("nccl")
layer = Layer(dist.new_group([0, 1]))
assert not isinstance(layer.up, (te.LayerNormMLP, te.TransformerLayer))  # as PEFT asks
for weight in (layer.up.weight, layer.down.weight):
    weight.main_grad = torch.zeros_like(weight, dtype=torch.float32)
optimizer = FusedAdam(layer.parameters())
for _ in range(10):
    with te.fp8_autocast(enabled="fp8" in sys.argv, fp8_recipe=Float8CurrentScaling()):
        out = layer(torch.randn(TOKENS, 1, WIDTH, device="cuda", dtype=torch.bfloat16))
    out.float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
