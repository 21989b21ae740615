"""Seconds of one callable: warm-up, repetitions with a cold cache, medians with their spread.

Device time is measured with the host ahead: before each repetition the device is kept busy for as long as the host needs to enqueue
it. Host time is measured separately and never added.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.profile.device import Device
from windtunnel.profile.power import Meter, PowerReading, Silent

SHORT = 20e-6
"""s. A shorter execution is repeated between two marks, because the error of an event is about half a microsecond."""

LOOP = 100e-6
"""s. Least duration of such a loop."""

MOST_LOOPS = 200

MIDDLING = 1e-3
"""s. Longer executions are not host-bound, and their first time is good enough to plan the others."""


@dataclass(frozen=True)
class Protocol:
    """The measurement protocol. `most_seconds`: warm-up and repetitions of one execution stop early beyond it (see `least`)."""

    warmup: int = 10
    repeats: int = 20
    least: int = 3
    most_seconds: float = 1.0
    flush: bool = True

    def on(self, device: Device) -> Protocol:
        """The protocol on a CPU, where an execution takes a thousand times as long: fewer of each."""
        return self if device.cuda else replace(self, warmup=min(self.warmup, 2), repeats=min(self.repeats, 11))

    def lasts(self, seconds: float, flush: float) -> float:
        """About how long a measurement of an execution of `seconds` takes, each repetition with a flush of `flush` s."""
        loops = math.ceil(LOOP / max(seconds, 1e-7)) if seconds < SHORT else 1
        count = self.fit_executions(self.repeats, seconds * loops)
        rough = 4 if seconds > MIDDLING else 10
        return (self.fit_executions(self.warmup, 2 * seconds) + rough) * seconds + count * (loops * seconds + flush + 50e-6)

    def fit_executions(self, wanted: int, seconds: float) -> int:
        """`wanted` executions of `seconds`, or as many as `most_seconds` holds, but `least`."""
        return min(wanted, max(self.least, math.ceil(self.most_seconds / seconds)))


@dataclass(frozen=True)
class KernelTiming:
    """One execution. `loops`: executions between two marks, of which all but the first find a warm cache where over 1."""

    seconds: float
    seconds_min: float
    seconds_max: float
    seconds_mean: float
    seconds_std: float
    repeats: int
    host_seconds: float | None
    loops: int
    peak: tuple[float, float] | None
    reading: PowerReading

    def fields(self) -> dict[str, Any]:
        """As columns of a dataset."""
        columns: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("seconds", "seconds_min", "seconds_max", "seconds_mean", "seconds_std", "repeats", "host_seconds")
        }
        if self.peak is not None:
            columns["peak_bytes"], columns["reserved_bytes"] = self.peak
        return {**columns, **self.reading.fields()}


def measure(
    run: Callable[[], object], device: Device, protocol: Protocol | None = None, meter: Meter | None = None
) -> KernelTiming:
    """Times of `run`, which enqueues one execution on the current stream and returns at once (or, on a CPU, when it is done).

    Each repetition begins with a cold cache (`protocol.flush`). Raises what `run` raises.
    """
    how = (protocol or Protocol()).on(device)
    watch = meter or Silent()
    clock = time.perf_counter()
    run()
    device.synchronize()
    tries = 3 if device.cuda and time.perf_counter() - clock < how.most_seconds / 10 else 1
    device.restart_peak()
    one, host = _rough_seconds(run, device, tries)
    for _ in range(how.fit_executions(how.warmup, 2 * one)):
        run()
    device.synchronize()
    if one < MIDDLING:
        one, host = _rough_seconds(run, device, tries)
        if device.cuda:  # again with the host ahead: a host-bound execution may be short on the device
            one, _ = _rough_seconds(run, device, tries, 5.0 * host)
    loops = min(MOST_LOOPS, math.ceil(LOOP / max(one, 1e-7))) if one < SHORT and device.cuda else 1
    count = how.fit_executions(how.repeats, one * loops)
    lead = 1.5 * host * loops + 20e-6
    marks, hosts = [], []
    used = watch.joules()
    busy_from = device.mark()
    for _ in range(count):
        if how.flush:
            device.flush()
        device.sleep(lead)
        begin = device.mark()
        clock = time.perf_counter()
        for _ in range(loops):
            run()
        hosts.append((time.perf_counter() - clock) / loops)
        marks.append((begin, device.mark()))
    busy_to = device.mark()
    reading = watch.read()
    device.synchronize()
    times = [device.seconds_between(begin, end) / loops for begin, end in marks]
    # Power is only valid for this kernel if it filled nearly all of the board's time.
    share = sum(times) * loops / max(device.seconds_between(busy_from, busy_to), 1e-12)
    after = watch.joules()
    joules = None if used is None or after is None else after - used
    reading = reading.of(statistics.median(times), share, device.seconds_between(busy_from, busy_to), joules)
    # An execution with a host wait (a pageable copy) has also waited for the lead.
    enqueued = min(statistics.median(hosts), host) if device.cuda else None
    return timing_of(times, enqueued, loops, device.peak(), reading)


def measure_in_turn(
    runs: Sequence[tuple[Callable[[], object], Callable[[], AbstractContextManager[object]]]],
    device: Device,
    protocol: Protocol,
    ends: float = math.inf,
) -> list[KernelTiming | None]:
    """Times of several runs, each in its context, one repetition of each after the other, as a step has them: what a run reads is
    as cold as the others have left it, but for what the kernel before it has just written (`touch` of a run that has it).

    On a processor, whose last level holds hundreds of MB: a kernel that is repeated in a row finds its operands, pages and code
    there. None for a run of which `ends`, on the monotonic clock, leaves fewer than `least` repetitions.
    """
    how = protocol.on(device)
    times: list[list[float]] = [[] for _ in runs]
    for number in range(1 + how.repeats):  # the first only warms up
        for (run, holding), taken in zip(runs, times, strict=True):
            if number and time.monotonic() > ends or taken and len(taken) >= how.fit_executions(how.repeats, taken[0]):
                continue
            seconds = seconds_of_turn(run, holding, device, device.mark)
            taken += [seconds] if number else []
    enough = min(how.least, how.repeats)
    return [timing_of(taken, None, 1, None, PowerReading()) if len(taken) >= enough else None for taken in times]


def seconds_of_turn(
    run: Callable[[], object], holding: Callable[[], AbstractContextManager[object]], device: Device, mark: Callable[[], Any]
) -> float:
    """Seconds between two marks of one repetition, which finds what the kernel before it would have written."""
    with holding():
        getattr(run, "touch", _nothing)()
        begin = mark()
        run()
        end = mark()
    device.synchronize()
    return device.seconds_between(begin, end)


def _nothing() -> None:
    """What is touched before a run that names no warm operands."""


def timing_of(
    times: Sequence[float], host: float | None, loops: int, peak: tuple[float, float] | None, reading: PowerReading
) -> KernelTiming:
    """Statistics of at least one time."""
    return KernelTiming(
        statistics.median(times),
        min(times),
        max(times),
        statistics.fmean(times),
        statistics.pstdev(times),
        len(times),
        host,
        loops,
        peak,
        reading,
    )


def _rough_seconds(run: Callable[[], object], device: Device, times: int, lead: float = 0.0) -> tuple[float, float]:
    """Device and host seconds of an execution, from `times` that the device begins `lead` s late."""
    device.sleep(lead)
    begin, clock = device.mark(), time.perf_counter()
    for _ in range(times):
        run()
    host = (time.perf_counter() - clock) / times
    end = device.mark()
    device.synchronize()
    return max(device.seconds_between(begin, end) / times, 1e-9), host
