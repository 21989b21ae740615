"""Ranks that `torch.multiprocessing.spawn` starts, with DDP, batches from a generator, and gradients scaled by hand."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def batches(has):
    generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
    while True:
        if has("data"):
            time.sleep(0.045)  # reads and augments
        yield torch.rand(16, 64, generator=generator)


def train(rank, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    from common import STEPS, Layer, between_steps, has

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=4)
    torch.manual_seed(1)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(Layer(64), Layer(64), Layer(64), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    source = batches(has)
    for step in range(STEPS):
        inputs = next(source)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(inputs), torch.arange(16) % 10)
        loss.backward()
        optimizer.step()
        between_steps()
        if step % 10 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = str(probe.getsockname()[1])
    mp.spawn(train, args=(free,), nprocs=4)
