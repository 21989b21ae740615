"""Copies between a GPU and pinned host memory in both directions, and within the GPU's memory: the slowest GPU of the node."""

from __future__ import annotations

import time
from typing import Any

from windtunnel.fleet.diagnose.result import DiagnosedDevice, MeasuredFigure, SelfTestOptions, device_of


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
