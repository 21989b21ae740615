"""A training script that knows nothing of the driver: it checkpoints itself, and fails on demand, once at each step that
is asked."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ms", type=float, default=15.0)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--fail", nargs="*", default=[], metavar="STEP:KIND")
    given = parser.parse_args()
    fails = {int(step): kind for step, _, kind in (one.partition(":") for one in given.fail)}
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = _load(given.folder, model, optimizer, rank)
    stepped = False
    while step < given.steps:
        if rank == 1 and step in fails:
            _fail(given.folder, step, fails[step])
        chance = torch.Generator().manual_seed(1000 * step + rank)
        loss = (model(torch.randn(8, 16, generator=chance)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
            weight.grad /= world
        optimizer.step()
        step += 1
        if rank == 0 and not stepped:
            (given.folder / "first-step").touch()
            stepped = True
        time.sleep(given.ms / 1000)
        if rank == 0 and step % given.every == 0:
            _save(given.folder / "checkpoint.pt", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    if rank == 0:
        _save(given.folder / "final.pt", model.state_dict())
    dist.barrier()
    dist.destroy_process_group()


def _save(path: Path, state: object) -> None:
    new = path.with_suffix(".new")
    torch.save(state, new)
    new.replace(path)


def _load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> int:
    path, began = folder / "checkpoint.pt", time.time()
    if not path.exists():
        dist.barrier()
        return 0
    state = torch.load(path)
    dist.barrier()  # nobody saves while others load
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    events = Path(os.environ["WINDTUNNEL_FLEET_DIR"], os.environ["WINDTUNNEL_FLEET_RUN"], f"checkpoints-{rank}.jsonl")
    with events.open("a", encoding="utf-8") as file:
        line = {"event": "load", "step": state["step"], "unix": time.time(), "seconds": time.time() - began, "source": "storage"}
        file.write(json.dumps(line) + "\n")
    return int(state["step"])


def _fail(folder: Path, step: int, kind: str) -> None:
    mark = folder / f"failed-{step}"
    if mark.exists():
        return
    mark.touch()
    if kind == "nan":
        print(f"step {step} loss=nan", flush=True)
        sys.exit(1)
    elif kind == "cuda":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    elif kind == "data":
        raise RuntimeError("DataLoader worker (pid 7) exited unexpectedly with exit code 1")
    elif kind == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "spin":
        while True:  # alive, in Python, and never in the call that the others wait in
            time.sleep(0.05)
    elif kind == "early-exit":
        os._exit(0)
    elif kind == "oom-limit":  # an address space that is full: what the system says is real, and Python raises MemoryError
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
        held = [bytearray(8 << 20) for _ in range(1000)]
        raise RuntimeError(f"{len(held)} blocks fit below the limit")
    elif kind == "oom-kill":  # the node has so much memory: the kernel kills the process that takes most of it
        block = 8 << 20
        taken = [b"x" * block for _ in range(int(os.environ["RECOVERY_MEMORY"]) // block)]
        raise RuntimeError(f"{len(taken)} blocks fit into the node's memory")


main()
