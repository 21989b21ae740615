"""Parallelism of several kinds, on the GPUs of the job or, with DEVICE=cpu, for real on processors over gloo."""

import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

KIND, DEVICE = sys.argv[1], os.environ.get("DEVICE", "cuda")
WIDTH, LAYERS, ROWS = 64, 3, 16


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


dist.init_process_group("gloo" if DEVICE == "cpu" else "nccl")
world = dist.get_world_size()
if DEVICE == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(1)
model = nn.Sequential(*(Feed() for _ in range(LAYERS))).to(DEVICE)
if KIND == "ddp":
    model = DistributedDataParallel(model, bucket_cap_mb=0.1)
elif KIND == "fsdp":
    for layer in model:
        fully_shard(layer, mesh=init_device_mesh(DEVICE, (world,)))
    fully_shard(model, mesh=init_device_mesh(DEVICE, (world,)))
elif KIND == "tp":
    mesh = init_device_mesh(DEVICE, (world,))
    for layer in model:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


class Operators(TorchDispatchMode):
    """Operators of a real step that compute, by name."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        schema = function._schema
        views = any(part.alias_info is not None and not part.alias_info.is_write for part in schema.returns)
        if schema.name.startswith("aten::") and not views and not schema.name.startswith("aten::empty"):
            self.names.append(schema.name + (f".{schema.overload_name}" if schema.overload_name else ""))
        return function(*arguments, **(named or {}))


optimizer = torch.optim.AdamW(model.parameters(), fused=False, foreach=False)
for step in range(5):
    x = torch.randn(ROWS, WIDTH, device=DEVICE)
    with (operators := Operators()) if DEVICE == "cpu" and step == 4 else contextlib.nullcontext():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
if DEVICE == "cpu" and dist.get_rank() == 0:
    print(json.dumps(operators.names))
