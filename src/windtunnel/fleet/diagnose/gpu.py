"""Tests of a node's GPUs: continuous bfloat16 matrix products, their rate, and whether equal products stay equal; copies between a
GPU and pinned host memory in both directions, and within the GPU's memory; copies from each GPU to the next one, over NVLink, or
the bus without it. The slowest GPU of the node counts.
"""

from __future__ import annotations

import time
from typing import Any

from windtunnel.fleet.diagnose.registry import DiagnosedDevice, MeasuredFigure, NotApplicableError, SelfTestOptions, device_of

LARGE, SMALL = 8192, 512
"""Rows of the matrices, on a GPU and on a CPU."""


def burn(options: SelfTestOptions) -> MeasuredFigure:
    """FLOP/s of the slowest GPU of the node."""
    return device_of(options).slowest(lambda device: _burn(device, options.seconds))


def _burn(device: DiagnosedDevice, seconds: float) -> MeasuredFigure:
    torch = device.torch
    rows = LARGE if device.gpu else SMALL
    generator = torch.Generator(device=device.name).manual_seed(1)
    left, right = (
        torch.randn(rows, rows, generator=generator, device=device.name, dtype=torch.bfloat16) for _ in range(2)
    )  # fmt: skip
    first = left @ right
    device.wait()
    count, wrong = 0, torch.zeros((), dtype=torch.int64, device=device.name)
    begun = time.perf_counter()
    spent = 0.0
    while count == 0 or time.perf_counter() - begun < seconds:
        at = time.perf_counter()
        for _ in range(8):
            product = left @ right
        device.wait()
        spent += time.perf_counter() - at
        count += 8
        wrong += (product != first).sum()  # stays on the device
    bad = int(wrong.item())
    return MeasuredFigure(2.0 * rows**3 * count / spent, device.backend, f"{bad} numbers of equal products differ" if bad else "")


def copy_in(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes per second from the host to the device."""
    return device_of(options).slowest(
        lambda device: _time_copy(device, options, _host_buffer(device, options.size), _device_buffer(device, options.size), 1.0)
    )


def copy_out(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes per second from the device to the host."""
    return device_of(options).slowest(
        lambda device: _time_copy(device, options, _device_buffer(device, options.size), _host_buffer(device, options.size), 1.0)
    )


def copy_within(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes read and written per second within the device."""
    return device_of(options).slowest(
        lambda device: _time_copy(device, options, _device_buffer(device, options.size), _device_buffer(device, options.size), 2.0)
    )


def _host_buffer(device: DiagnosedDevice, size: int) -> Any:
    torch = device.torch
    return torch.arange(max(1, size // 4), dtype=torch.int32, pin_memory=device.gpu)


def _device_buffer(device: DiagnosedDevice, size: int) -> Any:
    torch = device.torch
    return torch.arange(max(1, size // 4), dtype=torch.int32, device=device.name)


def _time_copy(device: DiagnosedDevice, options: SelfTestOptions, source: Any, target: Any, factor: float) -> MeasuredFigure:
    target.zero_()
    target.copy_(source, non_blocking=True)
    device.wait()
    rounds, begun = 0, time.perf_counter()
    while rounds == 0 or time.perf_counter() - begun < options.seconds:
        for _ in range(4):
            target.copy_(source, non_blocking=True)
        device.wait()
        rounds += 4
    took = time.perf_counter() - begun
    same = device.torch.equal(source.cpu(), target.cpu())
    rate = factor * rounds * source.numel() * source.element_size() / took
    return MeasuredFigure(rate, device.backend, "" if same else "what was copied differs from its source")


def copy_to_peers(options: SelfTestOptions) -> MeasuredFigure:
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
