"""Copies from each GPU of a node to the next one: over NVLink, or the bus without it."""

from __future__ import annotations

import time

from windtunnel.fleet.diagnose.result import MeasuredFigure, NotApplicableError, SelfTestOptions, device_of


def measure(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes per second of the slowest pair of neighbours."""
    devices = device_of(options).members
    if len(devices) < 2 or not devices[0].gpu:
        raise NotApplicableError(f"{len(devices)} GPU: a copy to a peer needs two")
    torch = devices[0].torch
    slowest: MeasuredFigure | None = None
    for index, here in enumerate(devices):
        there = devices[(index + 1) % len(devices)]
        source = torch.arange(max(1, options.size // 4), dtype=torch.int32, device=here.name)
        target = torch.zeros_like(source, device=there.name)
        target.copy_(source)
        here.wait()
        there.wait()
        rounds, begun = 0, time.perf_counter()
        while rounds == 0 or time.perf_counter() - begun < options.seconds / len(devices):
            for _ in range(4):
                target.copy_(source, non_blocking=True)
            here.wait()
            there.wait()
            rounds += 4
        rate = rounds * source.numel() * 4 / (time.perf_counter() - begun)
        direct = torch.cuda.can_device_access_peer(index, (index + 1) % len(devices))
        backend = f"torch, {here.name} to {there.name}, {'peer access' if direct else 'through the host'}"
        wrong = "" if torch.equal(source.cpu(), target.cpu()) else f"what {there.name} got from {here.name} differs"
        if slowest is None or wrong or rate < slowest.value:
            slowest = MeasuredFigure(rate, backend, wrong)
        if wrong:
            break
    assert slowest is not None
    return slowest
