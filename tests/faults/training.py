"""The job that the faults are put into: data parallel, optionally with pipeline stages, every rank watched."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from dataclasses import dataclass
from typing import Any

from tests.faults.planned import PlannedRank


@dataclass(frozen=True)
class Job:
    """What one run does. Seconds; `growing_gap`: rank and seconds by which its garbage collections grow in each step."""

    folder: str
    ranks: int = 8
    steps: int = 24
    forward: float = 0.008
    backward: float = 0.012
    width: int = 32
    stages: int = 1
    port: int = 0
    gap_rank: int = -1
    gap_growth: float = 0.0
    stuck_rank: int = -1  # from `stuck_step` on: "loop" computes for ever, "gil" sleeps for ever and holds the interpreter's lock
    stuck_step: int = -1
    stuck_how: str = "loop"
    sizes: int = 0  # bytes that the first rank of each machine sends to the next one in a step
    seed: int = 0
    clock: tuple[int, float] = (0, 0.0)  # ns and ppm by which the clock is wrong; the drift counts from `clock_base`
    clock_base: int = 0  # ns of the monotonic clock, which all processes of this machine share
    host: str = ""
    address: str = "127.0.0.1"
    interface: str = "lo"
    watched: bool = True
    planned: bool = False  # ranks take the seconds of `planned.FILE` in `folder` beside their work


def sleep_as_device(seconds: float, grain: float = 0.0005) -> None:
    """Takes a little more than `seconds` in short sleeps, as a device that works: each sleep is a piece of work, however long the
    process is stopped in it or waits for a core behind it."""
    for _ in range(round(seconds / grain)):
        time.sleep(grain)


def train(job: Job, rank: int) -> None:
    """One rank's whole life."""
    passed = time.monotonic_ns() - job.clock_base if job.clock[1] else 0
    clock = f"{job.clock[0] + int(passed * job.clock[1] * 1e-6)},{job.clock[1]}"
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(job.ranks), LOCAL_RANK=str(rank), MASTER_ADDR=job.address, MASTER_PORT=str(job.port),
        GLOO_SOCKET_IFNAME=job.interface, WINDTUNNEL_FLEET_DIR=job.folder, WINDTUNNEL_FLEET_CLOCK=clock,
        WINDTUNNEL_FLEET_HOST=job.host,
    )  # fmt: skip
    import torch
    import torch.distributed as dist

    from windtunnel.fleet import watch

    torch.set_num_threads(1)
    gc.disable()
    if job.watched:
        watch.start()
    dist.init_process_group("gloo", rank=rank, world_size=job.ranks)
    per_stage = job.ranks // job.stages
    groups = [dist.new_group(list(range(stage * per_stage, (stage + 1) * per_stage))) for stage in range(job.stages)]
    torch.manual_seed(job.seed)
    model = _model(torch, job)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    here = _Here(job, rank, rank // per_stage, per_stage, groups[rank // per_stage])
    plan = PlannedRank(torch, job.folder, rank, model, _collect) if job.planned else None
    for step in range(job.steps):
        if plan is not None:
            plan.begin(step)
        _step(torch, dist, model, optimizer, here, step)
    watch.stop()
    if plan is not None:
        plan.close()
    dist.destroy_process_group()


@dataclass(frozen=True)
class _Here:
    job: Job
    rank: int
    stage: int
    per_stage: int
    group: Any


def _step(torch: Any, dist: Any, model: Any, optimizer: Any, here: _Here, step: int) -> None:
    job, rank = here.job, here.rank
    inputs = torch.ones(4, job.width, requires_grad=True)
    if here.stage > 0:
        dist.recv(inputs.data, rank - here.per_stage)
    if rank == job.stuck_rank and step == job.stuck_step:
        _be_stuck(job)
    if rank == job.gap_rank:
        _collect(job.gap_growth * step)
    loss = model(inputs).sum()
    if here.stage + 1 < job.stages:
        dist.send(inputs.data, rank + here.per_stage)
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=here.group)
    if job.sizes:
        _to_neighbours(torch, dist, job, rank)
    optimizer.step()
    optimizer.zero_grad()


def _be_stuck(job: Job) -> None:
    """Never returns. Says when it began in a file beside the log."""
    with open(os.path.join(job.folder, "stuck"), "w", encoding="ascii") as file:
        file.write(repr(time.time()))
    if job.stuck_how == "gil":
        ctypes.PyDLL(None).sleep(1_000_000)
    while True:
        pass


def _model(torch: Any, job: Job) -> Any:
    """A small layer whose forward and backward take the time of a device."""

    class Device(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, value: Any) -> Any:
            sleep_as_device(job.forward)
            return value.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            sleep_as_device(job.backward)
            return gradient

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(job.width, job.width, bias=False)

        def forward(self, value: Any) -> Any:
            return Device.apply(self.layer(value))

    return Model()


def _collect(seconds: float) -> None:
    """A garbage collection that takes about so long, as one of a heap that grows does."""
    if seconds <= 0:
        return
    began = time.monotonic()

    class Slow:
        def __del__(self) -> None:
            sleep_as_device(max(seconds - (time.monotonic() - began), 0.0))

    one = Slow()
    one.me = one  # type: ignore[attr-defined]
    del one
    gc.collect()


def _to_neighbours(torch: Any, dist: Any, job: Job, rank: int) -> None:
    """Ranks exchange with every other in turn, as ring and pairwise algorithms do: the links between machines get equal bytes."""
    payload = torch.zeros(job.sizes // 4)
    for distance in range(1, job.ranks):
        peer = rank ^ distance
        if peer < job.ranks:
            first, second = (dist.send, dist.recv) if rank < peer else (dist.recv, dist.send)
            first(payload, peer)
            second(payload, peer)
