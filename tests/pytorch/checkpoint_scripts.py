"""Ranks for the tests of checkpoints, forked from this process (`forked_ranks`). gloo on loopback.

A job has a plan: alone, ddp, fsdp2, fsdp1, tp, tp-fsdp2, stages (of a model cut by hand) or traced (stages that torch cuts).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, SplitPoint, pipeline
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked_ranks import serve  # noqa: E402

from windtunnel.fleet.checkpoint.checkpointer import Checkpointer  # noqa: E402
from windtunnel.fleet.checkpoint.manifest import hash_of  # noqa: E402
from windtunnel.fleet.checkpoint.states import PerRank, RandomState  # noqa: E402
from windtunnel.fleet.loading.loader import (
    NodePlace,  # noqa: E402
    SharedLoader,  # noqa: E402
)

MICRO_BATCHES = 2


class TiedWeights(nn.Module):
    """A model whose last matrix is its first one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(16, 8, bias=False), nn.Linear(16, 16), nn.Linear(16, 8, bias=False)
        self.last.weight = self.first.weight

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.last(self.middle(given)) + self.first(given)


def network(width: int = 24) -> nn.Sequential:
    """The model, whole."""
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 5))


def planned(plan: str, model: nn.Module) -> tuple[nn.Module, Any]:
    """`model`, or this rank's part of it, under a plan, and its pipeline schedule where it has one."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if plan == "ddp":
        return DistributedDataParallel(model), None
    if plan == "fsdp1":
        return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu")), None
    if plan == "traced":
        pipe = pipeline(model, (torch.zeros(2, 16),), split_spec={"2": SplitPoint.BEGINNING})
        stage = pipe.build_stage(rank, torch.device("cpu"))
        return stage.submod, ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=_loss)
    if plan == "stages":
        parts = list(model.named_children())
        mine = nn.Sequential(OrderedDict(parts[:2] if rank == 0 else parts[2:]))
        return mine, ScheduleGPipe(PipelineStage(mine, rank, world, torch.device("cpu")), MICRO_BATCHES, loss_fn=_loss)
    if plan.startswith("tp"):
        shape, names = ((world,), ("tp",)) if plan == "tp" else ((world // 2, 2), ("dp", "tp"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return (fully_shard(model, mesh=mesh["dp"]) if plan == "tp-fsdp2" else model), None
    if plan == "fsdp2":
        for part in model.children():
            if any(True for _ in part.parameters(recurse=False)) and not isinstance(model, TiedWeights):
                fully_shard(part)
        fully_shard(model)
    return model, None


def _loss(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output.square().sum()


def job(plan: str, seed: int, tied: bool = False) -> dict[str, Any]:
    """A model that was trained for two steps, its optimizer of two groups, and random numbers."""
    torch.manual_seed(seed)
    model, schedule = planned(plan, TiedWeights() if tied else network())
    rates: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, value in model.named_parameters():
        rates[name.endswith("weight")].append(value)
    optimizer = torch.optim.AdamW([{"params": rates[True]}, {"params": rates[False], "weight_decay": 0.0}], lr=1e-2)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        given = torch.randn(4, 16, generator=generator)
        if schedule is None:
            _loss(model(given), given).backward()
        elif dist.get_rank() == 0:
            schedule.step(given)
        else:
            schedule.step(target=torch.zeros(4, 5))
        optimizer.step()
        optimizer.zero_grad()
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * seed + group["weight_decay"]
    return {"model": model, "optimizer": optimizer, "rng": PerRank(RandomState()), "epoch": seed}


def digests(state: dict[str, Any]) -> dict[str, str]:
    """A hash of each parameter that this rank has a part of, with its moments and options, the same for every plan."""
    whole = StateDictOptions(full_state_dict=True)
    weights = get_model_state_dict(state["model"], options=whole)
    flat = get_optimizer_state_dict(state["model"], state["optimizer"], options=whole)
    options = {name: group for group in flat["param_groups"] for name in group["params"]}
    told = {}
    for name, value in weights.items():
        raw = value.numpy().tobytes()
        if name in flat["state"]:
            raw += b"".join(flat["state"][name][key].numpy().tobytes() for key in ("exp_avg", "exp_avg_sq", "step"))
            raw += repr((options[name]["lr"], options[name]["weight_decay"])).encode()
        told[name] = hash_of(raw)
    return told


def say(**facts: Any) -> None:
    print(json.dumps({"rank": int(os.environ["RANK"]), **facts}), flush=True)


def save(folder: str, plan: str = "fsdp2", steps: tuple[int, ...] = (10, 20), tied: bool = False, **options: Any) -> None:
    """Saves a job at some steps, each with other weights."""
    with Checkpointer(folder, **own(options)) as checkpointer:
        state = job(plan, 1, tied)
        checkpointer.load(state)
        checkpointer.prepare(state)
        for step in steps:
            with torch.no_grad():
                for value in state["model"].parameters():
                    value.add_(step)
            state["epoch"] = step
            taken = checkpointer.save(step, state)
            say(step=step, digests=digests(state), blocking=taken.blocking_seconds, random=torch.rand(1).item())
            torch.manual_seed(1000 * step + int(os.environ["RANK"]))
        say(newest=checkpointer.wait(), failed=checkpointer.failed)
        if tied:
            told = get_model_state_dict(state["model"], options=StateDictOptions(full_state_dict=True))
            torch.save(told, Path(folder).with_name("whole.pt")) if dist.get_rank() == 0 else None


def load(folder: str, plan: str = "fsdp2", **options: Any) -> None:
    """Loads into a job that was trained otherwise."""
    with Checkpointer(folder, **own(options)) as checkpointer:
        state = job(plan, 7)
        step = checkpointer.load(state)
        told = checkpointer.last_load
        assert told is not None
        random = torch.rand(1).item()
        say(step=step, digests=digests(state), epoch=state["epoch"], storage=told.storage_bytes, memory=told.memory_bytes,
            received=told.received_bytes, source=told.source, passed=told.passed_over, random=random)  # fmt: skip


def trained(folder: str, kind: str, until: int, every: int = 3) -> None:
    """Trains a model of several buckets as the documents show it, from the newest step to `until`; says a hash of the weights."""
    torch.manual_seed(0)
    network = nn.Sequential(*[one for _ in range(6) for one in (nn.Linear(96, 96), nn.ReLU(), nn.Dropout(0.1))])
    model: Any = network
    if kind == "fsdp2":
        for part in network:
            if isinstance(part, nn.Linear):
                fully_shard(part)
        model = fully_shard(network)
    elif kind != "wrapped-late":
        model = nn.parallel.DistributedDataParallel(network, bucket_cap_mb=0.08)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1000 + dist.get_rank())
    with Checkpointer(folder) as checkpointer:
        state = {"model": network if kind == "wrapped-late" else model, "optimizer": optimizer, "random": PerRank(RandomState())}
        first = checkpointer.load(state) or 0
        if kind == "wrapped-late":
            model = nn.parallel.DistributedDataParallel(network, bucket_cap_mb=0.08)
        checkpointer.prepare(state)
        for step in range(first + 1, until + 1):
            model(torch.randn(8, 96)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % every == 0:
                checkpointer.save(step, state)
    whole = get_model_state_dict(network, options=StateDictOptions(full_state_dict=True))
    say(first=first, weights=hash_of(b"".join(value.numpy().tobytes() for _, value in sorted(whole.items()))))


def refused(folder: str, width: int = 5) -> None:
    """Says why a folder, or this state, is refused: the same on every rank, and no rank waits for another."""
    try:
        with Checkpointer(folder) as checkpointer:
            state: dict[str, Any] = {"model": nn.Linear(3, width)}
            loaded = checkpointer.load(state)
            checkpointer.prepare(state)
            say(loaded=loaded, why="")
    except Exception as error:
        say(loaded=None, why=f"{type(error).__name__}: {error}")


def linear(folder: str) -> None:
    """Saves steps 10 and 20 of a small model, of which every rank has the same."""
    with Checkpointer(folder) as checkpointer:
        state: dict[str, Any] = {"model": nn.Linear(3, 5)}
        checkpointer.load(state)
        for step in (10, 20):
            checkpointer.save(step, state)
            checkpointer.wait()


def die(folder: str, **options: Any) -> None:
    """Saves, waits, and is killed by its test; its flush process keeps the memory."""
    checkpointer = Checkpointer(folder, **own(options))
    state = job("fsdp2", 1)
    checkpointer.load(state)
    checkpointer.prepare(state)
    checkpointer.save(10, state)
    checkpointer.wait()
    say(step=10, digests=digests(state))
    time.sleep(600)


def skip(folder: str) -> None:
    """Saves while the flush process of rank 1 stands still: what finds both buffers busy is skipped on all ranks."""
    with Checkpointer(folder, busy="skip") as checkpointer:
        state: dict[str, Any] = {"weights": torch.zeros(1000), "rank": PerRank(torch.zeros(10))}
        checkpointer.prepare(state)
        assert checkpointer._flusher is not None
        process = checkpointer._flusher._process.process.pid
        if dist.get_rank() == 1:
            os.kill(process, signal.SIGSTOP)
        dist.barrier()
        taken = []
        for step in (1, 2, 3, 4):
            state["weights"].fill_(step)
            taken.append(checkpointer.save(step, state))
        dist.barrier()
        os.kill(process, signal.SIGCONT)
        say(staged=[one.staged for one in taken], why=[one.why for one in taken], bytes=[one.bytes for one in taken])
        say(newest=checkpointer.wait(), skipped=checkpointer.skipped, failed=checkpointer.failed)
        later = checkpointer.save(5, state)
        say(staged=later.staged, newest=checkpointer.wait())


def samples(folder: str, steps: int, address: str, kill_at: int = 0) -> None:
    """Trains on what a shared loader gives, saves each third step with the loader's place; rank 1 kills itself at `kill_at`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    place = NodePlace(rank, tuple(range(world)), world)
    weights = torch.zeros(4)
    with (
        SharedLoader(list(range(40)), 3, place, address=address, shuffle=True, seed=5, num_workers=2, prefetch=4) as loader,
        Checkpointer(folder) as checkpointer,
    ):
        state: dict[str, Any] = {"weights": weights, "loader": loader}
        step = checkpointer.load(state) or 0
        say(loaded=step)
        while step < steps:
            for batch in loader:
                step += 1
                say(step=step, samples=batch.tolist())
                state["weights"].add_(float(batch.sum()))
                if step == kill_at and rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                if step % 3 == 0:
                    checkpointer.save(step, state)
                if step == steps:
                    break
        checkpointer.wait()


def own(options: dict[str, Any]) -> dict[str, Any]:
    """Options of this rank."""
    if isinstance(options.get("node"), list):
        options["node"] = options["node"][int(os.environ["RANK"])]
    return options


def grouped(door: Any) -> Any:
    """A door that is called with all ranks in a group."""

    def called(*arguments: Any, **options: Any) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        door(*arguments, **options)
        dist.destroy_process_group()

    return called


if __name__ == "__main__":
    torch.optim.AdamW([nn.Parameter(torch.zeros(1))])  # imports a second's worth of modules
    serve({door.__name__: grouped(door) for door in (save, load, die, skip, samples, refused, linear, trained)})
