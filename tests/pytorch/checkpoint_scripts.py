"""Ranks for the tests of checkpoints: python checkpoint_scripts.py WHAT FOLDER [OPTIONS as JSON]. gloo on loopback."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from windtunnel.fleet.checkpoint.checkpointer import Checkpointer
from windtunnel.fleet.checkpoint.hashing import hash_of
from windtunnel.fleet.checkpoint.states import RandomState, RankState

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def job(sharded: bool, seed: int, width: int = 24) -> dict[str, Any]:
    """A model that was trained for two steps, its optimizer and random numbers."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 5))
    if sharded:
        for part in (model[0], model[2]):
            fully_shard(part)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        model(torch.randn(4, 16, generator=generator)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"model": model, "optimizer": optimizer, "rng": RankState(RandomState()), "epoch": seed}


def digest(state: dict[str, Any]) -> str:
    """A hash of all weights and moments, the same on every rank and for every plan."""
    parts = []
    model, optimizer = state["model"], state["optimizer"]
    for name, value in model.named_parameters():
        for one in (value, *(optimizer.state[value][key] for key in ("exp_avg", "exp_avg_sq", "step"))):
            full = one.full_tensor() if isinstance(one, DTensor) else one
            parts.append(name.encode() + full.detach().numpy().tobytes())
    return hash_of(b"".join(parts))


def say(**facts: Any) -> None:
    print(json.dumps({"rank": RANK, **facts}), flush=True)


def save(folder: Path, sharded: bool = True, steps: tuple[int, ...] = (10, 20), **options: Any) -> None:
    """Saves a job at some steps, each with other weights."""
    with Checkpointer(folder, **options) as checkpointer:
        state = job(sharded, 1)
        checkpointer.load(state)
        checkpointer.prepare(state)
        for step in steps:
            with torch.no_grad():
                for value in state["model"].parameters():
                    value.add_(step)
            state["epoch"] = step
            taken = checkpointer.save(step, state)
            say(step=step, digest=digest(state), blocking=taken.blocking_seconds, random=torch.rand(1).item())
            torch.manual_seed(1000 * step + RANK)
        say(newest=checkpointer.wait(), failed=checkpointer.failed)


def load(folder: Path, sharded: bool = True, **options: Any) -> None:
    """Loads into a job that was trained otherwise."""
    with Checkpointer(folder, **options) as checkpointer:
        state = job(sharded, 7)
        step = checkpointer.load(state)
        told = checkpointer.last_load
        assert told is not None
        say(step=step, digest=digest(state), epoch=state["epoch"], storage=told.storage_bytes, memory=told.memory_bytes,
            received=told.received_bytes, source=told.source, passed=told.passed_over, random=torch.rand(1).item())  # fmt: skip


def die(folder: Path, **options: Any) -> None:
    """Saves, waits, and is killed by its test; its flush process keeps the memory."""
    checkpointer = Checkpointer(folder, **options)
    state = job(True, 1)
    checkpointer.load(state)
    checkpointer.prepare(state)
    checkpointer.save(10, state)
    checkpointer.wait()
    say(step=10, digest=digest(state))
    time.sleep(600)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    arguments = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    if isinstance(arguments.get("node"), list):
        arguments["node"] = arguments["node"][RANK]
    {"save": save, "load": load, "die": die}[sys.argv[1]](Path(sys.argv[2]), **arguments)
    dist.destroy_process_group()
