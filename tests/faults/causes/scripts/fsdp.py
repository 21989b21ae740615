"""FSDP2 over four wrapped layers, with a loader of one worker process."""

import torch
import torch.distributed as dist
from common import RANK, STEPS, Layer, Samples, between_steps
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
torch.manual_seed(0)
model = nn.Sequential(*[Layer(64) for _ in range(3)], nn.Linear(64, 8))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
loader = torch.utils.data.DataLoader(Samples(), batch_size=16, num_workers=1, prefetch_factor=2)
for step, inputs in enumerate(loader):
    if step == STEPS:
        break
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    between_steps()
if RANK == 0:
    print("loss", float(loss))
dist.destroy_process_group()
