"""A training script of plain PyTorch (DDP, DataLoader, AdamW) that knows nothing of windtunnel. On CPUs, with gloo:

OMP_NUM_THREADS=1 windtunnel fleet run --dir out/fleet -- torchrun --nproc-per-node 8 examples/training/fleet_ddp.py --steps 100
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def model_of(width: int, layers: int) -> nn.Module:
    """A multilayer perceptron from 64 numbers to 10."""
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


class DeviceWork(nn.Module):
    """Stands for work of a device: passes its input on after so many seconds, without a core."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return inputs


def main() -> None:
    """Trains, prints the last loss and the seconds of a step from rank 0, and saves the weights where asked."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--width", type=int, default=128)
    options.add_argument("--layers", type=int, default=3)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--save", default="")
    options.add_argument("--device-ms", type=float, default=0.0, help="a forward takes so much longer, as work of a device would")
    options.add_argument("--slow", type=int, default=-1, help="a rank whose device takes 20 %% longer")
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    data = TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, given.batch, sampler=sampler, drop_last=True)
    network = model_of(given.width, given.layers)
    if given.device_ms:
        network.append(DeviceWork(given.device_ms * 1e-3 * (1.2 if rank == given.slow else 1.0)))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    step, epoch, began, loss = 0, 0, time.perf_counter(), torch.zeros(())
    while step < given.steps:
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == given.steps:
                break
        epoch += 1
    if rank == 0:
        print(f"loss {loss.item():.6f}, {(time.perf_counter() - began) / given.steps * 1e3:.2f} ms a step")
        if given.save:
            torch.save(model.module.state_dict(), given.save)
    dist.destroy_process_group()
    time.sleep(0.5)  # PyTorch 2.13 aborts a process that ends while a thread of gloo still lets go of the last tensor


if __name__ == "__main__":
    main()
