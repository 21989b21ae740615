"""A pipeline of torch.distributed.pipelining, 1F1B over four stages, and as many pipelines as there are ranks for."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, ROWS, MICRO, STAGES = 512, 64, 8, 4

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
mesh = init_device_mesh("cuda", (dist.get_world_size() // STAGES, STAGES), mesh_dim_names=("dp", "pp"))
stage = mesh["pp"].get_local_rank()
module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).to(device)
pipeline = PipelineStage(module, stage, STAGES, device, group=mesh["pp"].get_group())
schedule = Schedule1F1B(pipeline, n_microbatches=MICRO, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(module.parameters())
x, target = torch.randn(ROWS, WIDTH, device=device), torch.randn(ROWS, WIDTH, device=device)
for _ in range(3):
    optimizer.zero_grad()
    if stage == 0:
        schedule.step(x)
    elif stage == STAGES - 1:
        schedule.step(target=target, losses=[])
    else:
        schedule.step()
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())
    optimizer.step()
