"""Collectives of a group: an all-reduce or an all-to-all of `world` ranks, with NCCL if there is a GPU, otherwise with gloo over
TCP (the result says so). Each rank runs it. `within_node` starts a rank for each GPU of this node, as MegaScale tests a node.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.base.units import host_port
from windtunnel.fleet.diagnose.registry import DiagnosedDevice, MeasuredFigure, NotApplicableError, SelfTestOptions, device_of
from windtunnel.fleet.wire.sockets import free_port

CPU_RANKS = 4
"""Ranks within a node that is tested on its CPU."""

Prepared = tuple[Callable[[], None], Callable[[], str]]
"""Does the collective once; says what is wrong with its data."""


def all_reduce(options: SelfTestOptions) -> MeasuredFigure:
    """Bus bandwidth: bytes · 2 (n - 1) / n divided by the time of a call, of the group's slowest rank."""
    return _measure("all-reduce", options, 2.0, _all_reduce)


def all_to_all(options: SelfTestOptions) -> MeasuredFigure:
    """Bus bandwidth: bytes that a rank holds · (n - 1) / n divided by the time of a call, of the group's slowest rank."""
    return _measure("all-to-all", options, 1.0, _all_to_all)


def within_node(options: SelfTestOptions) -> MeasuredFigure:
    """Bus bandwidth of an all-to-all between the GPUs of this node, a process for each. RuntimeError if a rank fails,
    NotApplicableError for a single GPU.
    """
    devices = [member.name for member in device_of(options).members]
    if devices == ["cpu"]:
        devices *= CPU_RANKS
    elif len(devices) < 2:
        raise NotApplicableError("one GPU has no other to send to")
    program = [sys.executable, "-m", "windtunnel.fleet.diagnose", "all-to-all", "--json", "--master", f"127.0.0.1:{free_port()}"]
    shared = ["--world", str(len(devices)), "--size", str(options.size), "--seconds", str(options.seconds)]
    ranks = [
        subprocess.Popen(
            [*program, *shared, "--limit", str(options.limit), "--rank", str(rank), "--device", device],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank, device in enumerate(devices)
    ]  # fmt: skip
    try:
        results = [json.loads(rank.communicate(timeout=options.limit)[0] or b"{}") for rank in ranks]
    finally:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.kill()
            rank.wait()
    failed = [f"rank {rank}: {result.get('why', 'it died')}" for rank, result in enumerate(results) if not result.get("passed")]
    if failed:
        raise RuntimeError("; ".join(failed))
    return MeasuredFigure(min(result["measured"] for result in results), results[0]["backend"] + " of this node")


def _measure(
    name: str, options: SelfTestOptions, crossings: float, prepare: Callable[[DiagnosedDevice, SelfTestOptions], Prepared]
) -> MeasuredFigure:
    if not options.master or options.world < 2 or not 0 <= options.rank < options.world:
        raise SpecError(name, options.master or Nothing(), "--master HOST:PORT --world N --rank R, from two ranks on")
    host, port = host_port(options.master, "--master")
    device = device_of(options).members[0]
    torch = device.torch
    import torch.distributed as dist

    if device.gpu:
        torch.cuda.set_device(device.name)
    dist.init_process_group(
        "nccl" if device.gpu else "gloo", init_method=f"tcp://{host}:{port}", rank=options.rank, world_size=options.world,
        timeout=datetime.timedelta(seconds=options.limit),
    )  # fmt: skip
    try:
        seconds, wrong = _time_calls(device, options, prepare(device, options))
        slowest = torch.tensor([seconds], device=device.name)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        rate = options.size * crossings * (options.world - 1) / options.world / float(slowest.item())
    finally:
        dist.destroy_process_group()
    over = "NCCL" if device.gpu else "gloo over TCP, no GPU"
    return MeasuredFigure(rate, f"{over}, {options.world} ranks", wrong)


def _all_reduce(device: DiagnosedDevice, options: SelfTestOptions) -> Prepared:
    torch = device.torch
    import torch.distributed as dist

    ones = torch.full((max(1, options.size // 4),), 1.0 + options.rank, device=device.name)
    buffer = torch.empty_like(ones)
    total = options.world * (options.world + 1) / 2

    def call() -> None:
        dist.all_reduce(buffer.copy_(ones))

    def check() -> str:
        return "" if bool((buffer == total).all()) else f"the sum is not {total:g} everywhere"

    return call, check


def _all_to_all(device: DiagnosedDevice, options: SelfTestOptions) -> Prepared:
    """Each chunk carries its sender and receiver, so that one that arrives elsewhere is seen."""
    torch = device.torch
    import torch.distributed as dist

    world, rank, length = options.world, options.rank, max(1, options.size // 4 // options.world)
    ranks = torch.arange(world, device=device.name, dtype=torch.float32)
    sent = (rank * world + ranks).repeat_interleave(length)
    expected: Any = (ranks * world + rank).repeat_interleave(length)
    buffer = torch.empty_like(sent)

    def call() -> None:
        dist.all_to_all_single(buffer, sent)

    def check() -> str:
        wrong = (buffer != expected).nonzero()
        return "" if not len(wrong) else f"data from rank {int(wrong[0]) // length} arrived changed"

    return call, check


def _time_calls(device: DiagnosedDevice, options: SelfTestOptions, prepared: Prepared) -> tuple[float, str]:
    """Seconds per call after one warm-up call, and what is wrong with the data of the first or the last call."""
    torch = device.torch
    import torch.distributed as dist

    call, check = prepared
    call()
    device.wait()
    wrong = check()
    begun = time.perf_counter()
    call()
    device.wait()
    once = torch.tensor([time.perf_counter() - begun], device=device.name)
    dist.all_reduce(once, op=dist.ReduceOp.MAX)  # all ranks do the same number of calls
    rounds = max(1, int(options.seconds / max(float(once.item()), 1e-6)))
    begun = time.perf_counter()
    for _ in range(rounds):
        call()
    device.wait()
    return (time.perf_counter() - begun) / rounds, wrong or check()
