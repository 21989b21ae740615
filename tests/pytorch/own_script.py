"""A script without windtunnel's checkpointer, of the kinds that there are: KIND says what it saves and loads."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def _state(kind: str, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    if kind == "weights":
        return {"model": model.state_dict(), "epoch": 1}
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}


def _load(kind: str, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if not path.exists() or kind in ("nothing", "sgd-nothing"):
        return 0
    if kind == "dcp":
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        weights, moments = get_state_dict(model, optimizer)
        state: dict[str, Any] = {"model": weights, "optimizer": moments, "step": 0}
        dcp.load(state, checkpoint_id=path / (path / "newest").read_text())
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        return int(state["step"])
    found = torch.load(path)
    model.load_state_dict(found["model"])
    if kind == "weights":
        return int((path.parent / "step").read_text())
    optimizer.load_state_dict(found["optimizer"])
    return int(found["step"])


def _save(kind: str, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    if kind in ("nothing", "sgd-nothing"):
        return
    if kind == "dcp":
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict

        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=path / str(step))
        if dist.get_rank() == 0:
            (path / "new").write_text(str(step))
            (path / "new").replace(path / "newest")
    elif dist.get_rank() == 0:
        torch.save(_state(kind, model, optimizer, step), path.with_suffix(".new"))
        (path.parent / "step").write_text(str(step))
        path.with_suffix(".new").replace(path)
    dist.barrier()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--kind", default="nothing")
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--ms", type=float, default=40.0)
    options.add_argument("--kill", type=int, default=35, help="step of attempt 0 at which rank 1 raises")
    given = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 16))
    kind = torch.optim.SGD if given.kind.startswith("sgd") else torch.optim.AdamW
    optimizer = kind(model.parameters(), lr=1e-3)
    path = given.folder / "own.pt"
    step = _load(given.kind, path, model, optimizer)
    while step < given.steps:
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        time.sleep(given.ms / 1000)
        if step % 10 == 0:
            _save(given.kind, path, model, optimizer, step)
        if step == given.kill and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise ValueError("tokenizer shard 17 is gone \x1b]0;PWN\x07\x1b[31m[/bold]")
    dist.barrier()
    time.sleep(0.5)


if __name__ == "__main__":
    main()
