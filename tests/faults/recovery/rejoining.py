"""A training script that goes on through faults of its ranks, and raises where a file asks for it. Each rank writes its steps."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from windtunnel.fleet import train_through_faults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ms", type=float, default=15.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    asked = given.folder / f"raise-{rank}"
    with (given.folder / f"steps-{rank}.jsonl").open("a", encoding="utf-8") as log:

        def say(event: str, step: int) -> None:
            log.write(json.dumps({"event": event, "step": step, "unix": time.time(), "pid": os.getpid()}) + "\n")
            log.flush()

        def connect() -> Callable[[int], None]:
            def step(number: int) -> None:
                if asked.exists():
                    asked.unlink()
                    say("raised", number)
                    raise RuntimeError("DataLoader worker (pid 7) exited unexpectedly with exit code 1")
                chance = torch.Generator().manual_seed(1000 * number + rank)
                loss = (model(torch.randn(8, 16, generator=chance)) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                for weight in model.parameters():
                    dist.all_reduce(weight.grad)
                    weight.grad /= world
                optimizer.step()
                say("step", number)
                time.sleep(given.ms / 1000)

            return step

        train_through_faults(connect, {"model": model, "optimizer": optimizer}, given.steps, seed=1, backend="gloo")
    if rank == 0:
        torch.save(model.state_dict(), given.folder / "final.pt")
    dist.destroy_process_group()


main()
