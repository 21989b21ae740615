"""Tensor parallelism by DTensor: a mesh of 2 by 2, columns and rows of an MLP, DDP's work done by hand over dp."""

import torch
import torch.distributed as dist
from common import RANK, STEPS, Device, between_steps, has, work_on_device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, value):
        value = Device.apply(self.up(value).relu(), 0.008 if has("compute") else 0.004)
        return self.down(value)


model = nn.Sequential(*[Mlp() for _ in range(3)])
for block in model:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
group = mesh["dp"].get_group()
for step in range(STEPS):
    torch.manual_seed(1000 * step + mesh["dp"].get_local_rank())
    if has("data"):
        work_on_device(0.03)
    loss = model(torch.rand(8, 64)).square().mean()
    loss.backward()
    for parameter in model.parameters():
        local = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
        dist.all_reduce(local, group=group)
        local.div_(2)
    optimizer.step()
    optimizer.zero_grad()
    between_steps()
if RANK == 0:
    print("loss", float(loss))
dist.destroy_process_group()
