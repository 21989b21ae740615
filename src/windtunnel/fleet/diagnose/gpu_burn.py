"""Continuous bfloat16 matrix products: their rate, and whether equal products stay equal."""

from __future__ import annotations

import time

from windtunnel.fleet.diagnose.result import DiagnosedDevice, MeasuredFigure, SelfTestOptions, device_of

LARGE, SMALL = 8192, 512
"""Rows of the matrices, on a GPU and on a CPU."""


def measure(options: SelfTestOptions) -> MeasuredFigure:
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
