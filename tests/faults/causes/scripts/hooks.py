"""Gradients that hooks reduce one by one with async_op, as scripts from before DDP do it; ZeroRedundancyOptimizer updates."""

import torch
import torch.distributed as dist
from common import RANK, STEPS, Layer, Samples, between_steps, has, work_on_device
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Layer(64), Layer(64), nn.Linear(64, 8))
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
pending = []


def reduce(parameter):
    pending.append((dist.all_reduce(parameter.grad, async_op=True), parameter))


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(reduce)
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
batches = iter(torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=1))
for _ in range(STEPS):
    inputs = next(batches)
    model(inputs).pow(2).mean().backward()
    for work, parameter in pending:
        work.wait()
        parameter.grad /= 4
    pending.clear()
    if has("schedule"):  # a schedule that asks a slow service
        work_on_device(0.03)
    optimizer.step()
    optimizer.zero_grad()
    between_steps()
if RANK == 0:
    print("done")
dist.destroy_process_group()
