"""The job of `long_run`: four ranks of plain PyTorch (DDP, gloo) that train until told to end, and do what files tell them.

FOLDER/slow holds a rank whose device takes twice as long; FOLDER/data one whose batches come late; FOLDER/python one that works in
Python between its steps; FOLDER/loop one that computes for ever, outside of all calls, as long as the file is there.
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
LATE = 0.04
"""Seconds that a late batch takes, and the work in Python."""


class Device(nn.Module):
    """Stands for work of a device, which may be told to be slow."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__()
        self.slow, self.rank = folder / "slow", rank

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARD * (2.0 if told(self.slow) == self.rank else 1.0))
        return inputs


class Samples(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Random samples without end, which a rank may be told to read slowly."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.late, self.rank = folder / "data", rank

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % BATCH == 0 and told(self.late) == self.rank:
            time.sleep(LATE)
        return torch.full((64,), index % 89 / 89.0), index % 10


BATCH = 16


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
    for inputs, wanted in torch.utils.data.DataLoader(Samples(folder, rank), batch_size=BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), wanted).backward()
        optimizer.step()
        while told(folder / "loop") == rank:
            pass
        if told(folder / "python") == rank:
            until = time.perf_counter() + LATE
            while time.perf_counter() < until:
                sum(range(100))
    return 0


if __name__ == "__main__":
    sys.exit(main())
