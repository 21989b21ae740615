"""The job of `long_run`: four ranks of plain PyTorch (DDP, gloo) that train until told to end, and do what files tell them.

FOLDER/slow holds a rank whose device takes twice as long; FOLDER/loop a rank that computes for ever, outside of all calls, as long
as the file is there; FOLDER/end ends the job with an error.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FORWARD = 0.03
"""Seconds that the device works in a forward."""


class Device(nn.Module):
    """Stands for work of a device, which may be told to be slow."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__()
        self.slow, self.rank = folder / "slow", rank

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARD * (2.0 if told(self.slow) == self.rank else 1.0))
        return inputs


def told(path: Path) -> int:
    """The rank in a file; -1 if there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1


def main() -> int:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), Device(folder, rank), nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, wanted = torch.randn(16, 64), torch.randint(0, 10, (16,))
    over = torch.zeros(1)
    for step in range(10**9):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), wanted).backward()
        optimizer.step()
        while told(folder / "loop") == rank:
            pass
        if step % 10 == 0:
            over[0] = float((folder / "end").exists())
            dist.all_reduce(over)
            if over[0]:
                break
    dist.destroy_process_group()
    return 3


if __name__ == "__main__":
    sys.exit(main())
