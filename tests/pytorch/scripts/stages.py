"""A pipeline of torch.distributed.pipelining, 1F1B over all ranks."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, ROWS, MICRO = 512, 64, 8

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).to(device)
schedule = Schedule1F1B(PipelineStage(module, rank, world, device), n_microbatches=MICRO, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(module.parameters())
x, target = torch.randn(ROWS, WIDTH, device=device), torch.randn(ROWS, WIDTH, device=device)
for _ in range(3):
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    elif rank == world - 1:
        schedule.step(target=target, losses=[])
    else:
        schedule.step()
    optimizer.step()
