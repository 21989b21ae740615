"""Parallelism of several kinds, on the GPUs of the job or, with DEVICE=cpu, for real on processors over gloo."""

import contextlib
import json
import os
import sys
from bisect import bisect

import torch
import torch.distributed as dist
import torch.nn as nn
from torch._C._profiler import _EventType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

KIND, DEVICE = sys.argv[1], os.environ.get("DEVICE", "cuda")
WIDTH, LAYERS, ROWS, HEADS, WORDS = 64, 3, 32, 4, 256


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        parts = (part.view(2, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.inputs(self.norm(x)).split(WIDTH, -1))
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.output(mixed.transpose(1, 2).reshape(x.shape))


dist.init_process_group("gloo" if DEVICE == "cpu" else "nccl")
world = dist.get_world_size()
if DEVICE == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
if KIND in ("tp", "mesh"):
    mesh = init_device_mesh(DEVICE, (world // 2, 2), mesh_dim_names=("dp", "tp"))
elif KIND == "fsdp":
    mesh = {"dp": init_device_mesh(DEVICE, (world,))}
profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
if DEVICE == "cpu" and dist.get_rank() == 0:
    profiler.start()
torch.manual_seed(1)
if KIND == "attention":
    layers = (layer for _ in range(LAYERS) for layer in (Attention(), Feed()))
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *layers, nn.Linear(WIDTH, WORDS)).to(DEVICE)
else:
    model = nn.Sequential(*(Feed() for _ in range(LAYERS))).to(DEVICE)
if KIND in ("ddp", "attention"):
    model = DistributedDataParallel(model, bucket_cap_mb=0.1)
if KIND in ("tp", "mesh"):
    for layer in model:
        parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
if KIND in ("fsdp", "mesh"):
    for part in (*model, model):
        fully_shard(part, mesh=mesh["dp"])


class Operators(TorchDispatchMode):
    """Operators of a real step that compute by kernels of their own, by name."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        schema = function._schema
        views = any(part.alias_info is not None and not part.alias_info.is_write for part in schema.returns)
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        composed = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd") and name != "aten::copy_"
        if name.startswith("aten::") and not views and not composed:
            self.names.append(name)
        return function(*arguments, **(named or {}))


def happened(events, inside=()):
    """When an event of a real run began, the event, and what runs around it: names with numbers of their own."""
    for event in events:
        yield event.start_time_ns, event, inside
        yield from happened(event.children, (*inside, f"{event.name}#{event.id}"))


def allocations(profiler):
    """Bytes of each allocation, negative where it ends, its address, how many updates came before, and what runs around it."""
    ordered = sorted(happened(profiler.profiler.kineto_results.experimental_event_tree()), key=lambda entry: entry[0])
    updated = [event.end_time_ns for _, event, _ in ordered if event.name.startswith("Optimizer.step")]
    for time, event, inside in ordered:
        if event.typed[0] == _EventType.Allocation:
            yield event.extra_fields.alloc_size, event.extra_fields.ptr, bisect(updated, time), inside


optimizer = torch.optim.AdamW(model.parameters(), fused=False, foreach=False)
for step in range(6):
    x = torch.randint(WORDS, (2, ROWS), device=DEVICE) if KIND == "attention" else torch.randn(ROWS, WIDTH, device=DEVICE)
    with (operators := Operators()) if DEVICE == "cpu" and step == 5 else contextlib.nullcontext():
        made = model(x)
        loss = nn.functional.cross_entropy(made.flatten(0, 1), x.flatten()) if KIND == "attention" else made.square().mean()
        loss.backward()
        optimizer.step()
    if DEVICE == "cpu" and step == 4 and dist.get_rank() == 0:
        profiler.stop()
    optimizer.zero_grad()
if DEVICE == "cpu" and dist.get_rank() == 0:
    print(json.dumps({"operators": operators.names, "memory": list(allocations(profiler))}))
