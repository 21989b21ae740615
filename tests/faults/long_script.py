"""The job of `long_run`: four ranks of plain PyTorch (DDP, gloo) that train until told to end, and do what files tell them.

FOLDER/slow holds a rank whose device takes twice as long; FOLDER/data one whose batches come late; FOLDER/python one that works in
Python between its steps; FOLDER/loop one that computes for ever, outside of all calls, as long as the file is there. A rank in
FOLDER/stall stops at every 12th step, one in FOLDER/save saves at every 4th; a rank in FOLDER/nan or FOLDER/spike prints such a
loss, one in FOLDER/log that it tries again; of one in FOLDER/thread a thread ends by an exception.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path
from typing import Any

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


class SlowFile(io.BytesIO):
    """A file on a slow disk."""

    def write(self, data: Any, /) -> int:
        time.sleep(0.02)
        return super().write(data)


def read_ahead() -> None:
    raise OSError("shard 17 is corrupt")


def misbehave(folder: Path, rank: int, step: int, loss: float) -> None:
    """What files tell this rank to do behind its step, and its line of the log."""
    if step % 5 == 0 or told(folder / "nan") == rank or told(folder / "spike") == rank:
        loss = float("nan") if told(folder / "nan") == rank else loss * (4.0 if told(folder / "spike") == rank else 1.0)
        print(f"step {step} loss: {loss:.4f}", flush=True)
    if step % 12 == 0 and told(folder / "stall") == rank:
        time.sleep(6 * FORWARD)
    if step % 4 == 0 and told(folder / "save") == rank:
        torch.save({"weights": [torch.zeros(8) for _ in range(4)]}, SlowFile())
    if told(folder / "log") == rank:
        print("fetch failed, attempt 4", flush=True)
    if told(folder / "thread") == rank and step % 20 == 0:
        threading.Thread(target=read_ahead, name=f"reader {step}").start()
    while told(folder / "loop") == rank:
        pass
    if told(folder / "python") == rank:
        until = time.perf_counter() + LATE
        while time.perf_counter() < until:
            sum(range(100))


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
    loader = torch.utils.data.DataLoader(Samples(folder, rank), batch_size=BATCH)
    for step, (inputs, wanted) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        misbehave(folder, rank, step, float(loss))
    return 0


if __name__ == "__main__":
    sys.exit(main())
