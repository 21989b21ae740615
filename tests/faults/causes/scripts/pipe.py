"""PyTorch's pipelining: four stages, GPipe, four micro batches; only the first stage reads data."""

import torch
import torch.distributed as dist
from common import RANK, STEPS, Layer, Samples, between_steps
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

torch.set_num_threads(1)
dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(0)
module = Layer(64, slow=2.0)
stage = PipelineStage(module, RANK, world, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).pow(2).mean())
optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
batches = iter(torch.utils.data.DataLoader(Samples(), batch_size=16))
target = torch.zeros(16, 64)
for _ in range(STEPS):
    if RANK == 0:
        schedule.step(next(batches))
    elif world - 1 == RANK:
        schedule.step(target=target)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
    between_steps()
dist.destroy_process_group()
