"""DistributedDataParallel with a DataLoader, a norm, and a scheduler. ACCUMULATE: micro batches a step; COMPILE: compiled."""

import os

import torch
import torch.distributed as dist
from common import RANK, STEPS, Layer, Samples, between_steps, has
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
accumulate = int(os.environ.get("ACCUMULATE", "1"))
model = nn.Sequential(Layer(64), Layer(64), nn.Linear(64, 8))
if os.environ.get("COMPILE"):
    model = torch.compile(model, backend="aot_eager")
net = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
batches = iter(torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=0))
for _ in range(STEPS):
    for micro in range(accumulate):
        inputs = next(batches)
        with net.no_sync() if micro + 1 < accumulate else torch.enable_grad():
            loss = net(inputs).pow(2).mean() / accumulate
            loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    between_steps()
    if has("save"):
        torch.save({"big": torch.ones(6 << 20), **net.module.state_dict()}, os.environ["LOG"] + ".pt")
if RANK == 0:
    print("loss", float(loss))
dist.destroy_process_group()
