"""A tiny model trained with `windtunnel-fleet` alone: watched, checkpointed, loaded again. `check.py` runs it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from windtunnel.fleet import watch
from windtunnel.fleet.checkpoint.checkpointer import Checkpointer
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.records.sections import Section

STEPS, HALF = 8, 4


def train(folder: Path, last: int, loaded: int | None = None) -> float:
    """The loss of step `last`, which is saved; the checkpoint of step `loaded` comes first."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = {"model": model, "optimizer": optimizer}
    with Checkpointer(folder, keep=2) as checkpointer:
        assert checkpointer.load(state) == loaded
        for step in range((loaded or 0) + 1, last + 1):
            torch.manual_seed(step)
            loss = model(torch.randn(8, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        checkpointer.save(last, state)
        checkpointer.wait()
    return float(loss.detach())


def main() -> None:
    """Trains at once and in two halves: both end with the same loss to the bit, and each step of the first was recorded."""
    assert find_spec("windtunnel.predict") is None, "this is to run without the simulator"
    os.environ["RANK"] = "0"
    watch.start(folder=Path("records"))
    whole = train(Path("whole"), STEPS)
    watch.stop()
    train(Path("halves"), HALF)
    assert train(Path("halves"), STEPS, HALF) == whole
    recorded = recorded_of_rings(Path("records") / "job")
    steps = int(np.count_nonzero(recorded.sections.section == Section.STEP))
    assert steps >= STEPS - 1, steps
    print(f"{steps} steps recorded, loss {whole:.6f} with and without a checkpoint between")


if __name__ == "__main__":
    main()
