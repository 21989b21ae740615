"""Times of a module's forward, backward and optimizer update."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.profile.device import Device
from windtunnel.profile.power import Meter, PowerReading
from windtunnel.profile.timing import KernelTiming, timing_of

if TYPE_CHECKING:  # traces of others are read without torch
    from torch import Tensor

    from windtunnel.profile.modules.layer import TimedUpdate

Tick = Callable[[], None]
"""Called between repetitions; raises `Stopped` to give up."""

PHASES = ("forward", "backward", "optimizer")


class Stopped(Exception):
    """Ctrl-C, or the time budget is used up: the current measurement is dropped, rows already written stay."""


@dataclass(frozen=True)
class Run:
    """A module with the inputs of one training step: `forward()` returns the output from which `backward` starts, with
    `gradient`."""

    forward: Callable[[], Tensor]
    gradient: Tensor | None
    parameters: list[Tensor]
    inputs: list[Tensor]
    update: TimedUpdate | None = None

    def backward(self, out: Tensor) -> None:
        out.backward(self.gradient)

    def clear(self) -> None:
        """Set all gradients to None, so that the next backward pass writes them instead of accumulating."""
        for tensor in (*self.parameters, *self.inputs):
            tensor.grad = None


class Clock:
    """Times of the repetitions of one run, by phase."""

    def __init__(self, run: Run, device: Device) -> None:
        self.run, self.device = run, device
        self.times: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.hosts: dict[str, list[float]] = {phase: [] for phase in PHASES}

    def repeat(self, keep: bool, before_end: Callable[[], None] = lambda: None) -> None:
        """One repetition from an idle device to an idle device; `before_end` is called while the device may still work."""
        run, device = self.run, self.device
        run.clear()
        device.synchronize()
        points = [(device.mark(), time.perf_counter())]
        out = run.forward()
        points.append((device.mark(), time.perf_counter()))
        run.backward(out)
        points.append((device.mark(), time.perf_counter()))
        del out
        if run.update is not None:
            run.update.step()
            points.append((device.mark(), time.perf_counter()))
        before_end()
        device.synchronize()
        if keep:
            for phase, begin, end in zip(PHASES, points, points[1:], strict=False):
                self.times[phase].append(device.seconds_between(begin[0], end[0]))
                self.hosts[phase].append(end[1] - begin[1])

    def timings(self, reading: Callable[[float], PowerReading] = lambda seconds: PowerReading()) -> dict[str, KernelTiming]:
        """Statistics of each phase; `reading` of what a phase's seconds drew."""
        return {
            phase: timing_of(taken, median(self.hosts[phase]) if self.device.cuda else None, 1, None, reading(median(taken)))
            for phase, taken in self.times.items()
            if taken
        }


def time_phases(run: Run, device: Device, meter: Meter, warmup: int, repeats: int, tick: Tick) -> dict[str, KernelTiming]:
    """Each phase's device time, and what the host needs to enqueue it (None where host and device are one).

    The device is idle when a repetition begins, and the host waits for it only at the end. So a host-bound phase takes the host's
    time, as in training.
    """
    clock = Clock(run, device)
    for _ in range(warmup):
        tick()
        clock.repeat(keep=False)
    readings = [PowerReading()]
    joules, began = meter.joules(), time.perf_counter()
    for number in range(repeats):
        tick()
        last = number == repeats - 1
        clock.repeat(True, (lambda: readings.append(meter.read())) if last else (lambda: None))
    run.clear()
    lasted, after = time.perf_counter() - began, meter.joules()
    used = None if joules is None or after is None else after - joules
    share = sum(map(sum, clock.times.values())) / lasted
    return clock.timings(lambda seconds: readings[-1].of(seconds, share, lasted, used))


def time_in_turn(
    runs: Mapping[str, Run], device: Device, warmup: int, repeats: int, tick: Tick
) -> dict[str, dict[str, KernelTiming]]:
    """Each phase's time of several runs, one repetition of each after the other."""
    clocks = {name: Clock(run, device) for name, run in runs.items()}
    for number in range(warmup + repeats):
        tick()
        for clock in clocks.values():
            clock.repeat(number >= warmup)
            clock.run.clear()
    return {name: clock.timings() for name, clock in clocks.items()}


def slope(series: Mapping[int, float]) -> float | None:
    """Cost of one more layer: least-squares slope over {layers: quantity}; None below two points."""
    if len(series) < 2:
        return None
    middle, level = sum(series) / len(series), sum(series.values()) / len(series)
    return sum((n - middle) * (s - level) for n, s in series.items()) / sum((n - middle) ** 2 for n in series)


def per_layer(series: Mapping[int, KernelTiming]) -> KernelTiming | None:
    """The slope of medians as a timing; its spread is that of the deepest stack, per layer."""
    line = slope({n: t.seconds for n, t in series.items()})
    if line is None:
        return None
    most = max(series)
    deep, ratio = series[most], 1 / most
    hosts = slope({n: t.host_seconds for n, t in series.items() if t.host_seconds is not None})
    joules = deep.reading.energy_j
    return replace(
        deep,
        seconds=line,
        seconds_min=deep.seconds_min * ratio,
        seconds_max=deep.seconds_max * ratio,
        seconds_mean=deep.seconds_mean * ratio,
        seconds_std=deep.seconds_std * ratio,
        host_seconds=None if hosts is None else max(0.0, hosts),
        reading=replace(deep.reading, energy_j=None if joules is None else joules * ratio),
    )
