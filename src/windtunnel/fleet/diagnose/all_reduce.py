"""All-reduce between nodes: NCCL if there is a GPU, otherwise gloo over TCP (the result says so). Each of `world` nodes runs it
with its rank.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

from windtunnel.base.addresses import host_port
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.fleet.diagnose.result import DiagnosedDevice, MeasuredFigure, SelfTestOptions, device_of


def measure(options: SelfTestOptions) -> MeasuredFigure:
    """Bus bandwidth: bytes · 2 (n - 1) / n divided by the time of a call, of the group's slowest rank."""
    if not options.master or options.world < 2 or not 0 <= options.rank < options.world:
        raise SpecError("all-reduce", options.master or Nothing(), "--master HOST:PORT --world N --rank R, from two ranks on")
    host, port = host_port(options.master, "--master")
    device = device_of(options).members[0]
    torch = device.torch
    import torch.distributed as dist

    backend = "nccl" if device.gpu else "gloo"
    patience = datetime.timedelta(seconds=options.limit)
    dist.init_process_group(
        backend, init_method=f"tcp://{host}:{port}", rank=options.rank, world_size=options.world, timeout=patience
    )  # fmt: skip
    try:
        seconds, wrong = _time_calls(
            device, options, torch.full((max(1, options.size // 4),), 1.0 + options.rank, device=device.name)
        )
        slowest = torch.tensor([seconds], device=device.name)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        rate = options.size * 2.0 * (options.world - 1) / options.world / float(slowest.item())
    finally:
        dist.destroy_process_group()
    over = "NCCL" if device.gpu else "gloo over TCP, no GPU"
    return MeasuredFigure(rate, f"{over}, {options.world} ranks", wrong)


def _time_calls(device: DiagnosedDevice, options: SelfTestOptions, ones: Any) -> tuple[float, str]:
    """Seconds per call after one warm-up call, and what is wrong with the sum."""
    torch = device.torch
    import torch.distributed as dist

    buffer = torch.clone(ones)
    dist.all_reduce(buffer)
    device.wait()
    total = options.world * (options.world + 1) / 2
    wrong = "" if bool((buffer == total).all()) else f"the sum is not {total:g} everywhere"
    begun = time.perf_counter()
    dist.all_reduce(buffer.copy_(ones))
    device.wait()
    once = torch.tensor([time.perf_counter() - begun], device=device.name)
    dist.all_reduce(once, op=dist.ReduceOp.MAX)  # all ranks do the same number of calls
    rounds = max(1, int(options.seconds / max(float(once.item()), 1e-6)))
    begun = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(buffer)
        buffer.copy_(ones)
    device.wait()
    return (time.perf_counter() - begun) / rounds, wrong
