"""A training script that goes on where it was killed, with the same final weights. On CPUs, with gloo:

windtunnel fleet run -- torchrun --standalone --nproc-per-node 4 --max-restarts 3 examples/training/fleet_checkpoint.py
--folder saved
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from windtunnel.fleet import Checkpointer, PerRank, RandomState


class Order:
    """Which samples come next: seeded, and saved with the weights."""

    def __init__(self, samples: int, batch: int, rank: int, world: int) -> None:
        self.samples, self.batch, self.rank, self.world, self.at = samples, batch, rank, world, 0

    def take(self) -> torch.Tensor:
        """This rank's next samples."""
        epoch, at = divmod(self.at, self.samples // (self.batch * self.world))
        order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(epoch))
        self.at += 1
        return order[(at * self.world + self.rank) * self.batch :][: self.batch]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def options_given() -> argparse.Namespace:
    options = argparse.ArgumentParser()
    options.add_argument("--folder", required=True)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--every", type=int, default=10, help="steps between two saves")
    options.add_argument("--width", type=int, default=128)
    options.add_argument("--step-ms", type=float, default=0.0, help="a step takes so much longer, as work of a device would")
    options.add_argument("--kill", default="", help="RANK:STEP, once: the rank kills itself at this step; tries out a restart")
    return options.parse_args()


def weights_hash(model: nn.Module) -> str:
    """The same for the same weights, bit by bit."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Trains; prints a hash of the final weights from rank 0."""
    given = options_given()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs, labels = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
    network = nn.Sequential(nn.Linear(64, given.width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(given.width, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    order = Order(len(inputs), 16, rank, world)
    torch.manual_seed(1000 + rank)  # dropout differs from rank to rank

    checkpointer = Checkpointer(given.folder, keep=3, topology={"dp": world})
    state = {"model": network, "optimizer": optimizer, "order": order, "random": PerRank(RandomState())}
    first = checkpointer.load(state) or 0
    checkpointer.prepare(state)
    if rank == 0 and checkpointer.last_load is not None:
        print(f"goes on from step {first}, read from {checkpointer.last_load.source}", flush=True)
    for step in range(first + 1, given.steps + 1):
        taken = order.take()
        nn.functional.cross_entropy(model(inputs[taken]), labels[taken]).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(given.step_ms * 1e-3)
        if given.kill == f"{rank}:{step}" and not (mark := Path(given.folder) / f"killed-{rank}-{step}").exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if step % given.every == 0:
            checkpointer.save(step, state)
    newest = checkpointer.wait()
    if rank == 0:
        print(f"weights {weights_hash(network)} after step {given.steps}, checkpoint of step {newest}", flush=True)
    checkpointer.close()
    dist.destroy_process_group()
    time.sleep(0.5)  # PyTorch 2.13 aborts a process that ends while a thread of gloo still lets go of the last tensor


if __name__ == "__main__":
    main()
