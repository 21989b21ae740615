"""A training script as the documents show it, for jobs under a driver: plain DDP, saves through `Checkpointer`. What a test adds:
a disk that is full from a step on, and what the script does at its end."""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from windtunnel.fleet import Checkpointer, PerRank, RandomState

FULL = 100_000
"""Bytes that a file may have on a full disk: events and acknowledgements fit, shards do not."""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--saved", default="")
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--every", type=int, default=10)
    options.add_argument("--ms", type=float, default=5.0)
    options.add_argument("--full", type=int, default=0, help="step after which the disk is full")
    options.add_argument("--room", type=int, default=0, help="step after which it is not any more")
    options.add_argument("--end", default="close", help="close, or nothing: the script just ends")
    given = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)), bucket_cap_mb=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1000 + dist.get_rank())
    checkpointer = Checkpointer(given.saved or given.folder / "saved", keep=3)
    state = {"model": model, "optimizer": optimizer, "random": PerRank(RandomState())}
    first = checkpointer.load(state) or 0
    checkpointer.prepare(state)
    assert checkpointer._flusher is not None
    flush = checkpointer._flusher._process.process.pid
    for step in range(first + 1, given.steps + 1):
        model(torch.randn(8, 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(given.ms / 1000)
        if step % given.every == 0:
            if given.full and step - given.every <= given.full < step:
                checkpointer.wait()  # what was saved before is kept, however slow the machine
            if given.full and given.full < step <= (given.room or step):
                resource.prlimit(flush, resource.RLIMIT_FSIZE, (FULL, resource.RLIM_INFINITY))
            elif given.room and step > given.room:
                resource.prlimit(flush, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            checkpointer.save(step, state)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), given.folder / "final.pt")
    if given.end == "close":
        checkpointer.close()
        dist.destroy_process_group()
        time.sleep(0.5)  # PyTorch 2.13 aborts a process that ends while a thread of gloo still lets go of the last tensor
    else:
        dist.barrier()
        time.sleep(0.5)


if __name__ == "__main__":
    main()
