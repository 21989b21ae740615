"""Copies between a GPU and pinned host memory, both ways, and within the GPU's memory: the slowest GPU of the node."""

from __future__ import annotations

import time
from typing import Any

from windtunnel.fleet.diagnose.device import DiagnosedDevice, device_of
from windtunnel.fleet.diagnose.result import Asked, MeasuredFigure


def copy_in(asked: Asked) -> MeasuredFigure:
    """Bytes a second from the host."""
    return device_of(asked).slowest(lambda device: _copy(device, asked, _host(device, asked.size), _there(device, asked.size), 1.0))


def copy_out(asked: Asked) -> MeasuredFigure:
    """Bytes a second to the host."""
    return device_of(asked).slowest(lambda device: _copy(device, asked, _there(device, asked.size), _host(device, asked.size), 1.0))


def copy_within(asked: Asked) -> MeasuredFigure:
    """Bytes read and written a second within the device."""
    return device_of(asked).slowest(
        lambda device: _copy(device, asked, _there(device, asked.size), _there(device, asked.size), 2.0)
    )


def _host(device: DiagnosedDevice, size: int) -> Any:
    torch = device.torch
    return torch.arange(max(1, size // 4), dtype=torch.int32, pin_memory=device.gpu)


def _there(device: DiagnosedDevice, size: int) -> Any:
    torch = device.torch
    return torch.arange(max(1, size // 4), dtype=torch.int32, device=device.name)


def _copy(device: DiagnosedDevice, asked: Asked, source: Any, target: Any, factor: float) -> MeasuredFigure:
    target.zero_()
    target.copy_(source, non_blocking=True)
    device.wait()
    rounds, begun = 0, time.perf_counter()
    while rounds == 0 or time.perf_counter() - begun < asked.seconds:
        for _ in range(4):
            target.copy_(source, non_blocking=True)
        device.wait()
        rounds += 4
    took = time.perf_counter() - begun
    same = device.torch.equal(source.cpu(), target.cpu())
    rate = factor * rounds * source.numel() * source.element_size() / took
    return MeasuredFigure(rate, device.backend, "" if same else "what was copied differs from its source")
