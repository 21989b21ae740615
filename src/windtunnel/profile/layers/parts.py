"""Times of sub-modules inside a stack of layers, by hooks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median

from torch import nn

from windtunnel.profile.closure import Way
from windtunnel.profile.device import Device
from windtunnel.profile.layer_timing import Clock, Run, Tick
from windtunnel.profile.layers.hooks import Hooks
from windtunnel.profile.modules.family import ModuleFamily
from windtunnel.profile.modules.layer import Placed
from windtunnel.profile.power import PowerReading
from windtunnel.profile.timing import KernelTiming, timing_of


@dataclass(frozen=True)
class Parts:
    """One execution of each sub-module by (op, phase); class names by op; and a pass over the stack by phase: its parts and what
    lies between them, beside plain passes in turn."""

    timings: dict[tuple[str, str], KernelTiming]
    names: dict[str, str]
    ways: dict[str, Way]


def time_parts(run: Run, placed: Placed, family: ModuleFamily, device: Device, warmup: int, repeats: int, tick: Tick) -> Parts:
    """Times of every sub-module of `placed`, over the mean of its equals in a repetition. Nothing waits inside a repetition."""
    named: dict[str, list[nn.Module]] = defaultdict(list)
    for layer in placed.stack.layers:
        for op, modules in family.parts(layer).items():
            named[op] += modules
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    hosts: dict[tuple[str, str], list[float]] = defaultdict(list)
    sums: dict[str, list[float]] = {"forward": [], "backward": []}
    plain = Clock(replace(run, update=None), device)
    for number in range(warmup + repeats):
        tick()
        plain.repeat(number >= warmup)
        watched = Clock(plain.run, device)
        with Hooks(named, device) as hooks:
            watched.repeat(keep=True)
        inside = hooks.by_name()
        if number >= warmup:
            for (op, phase), (seconds, host) in inside.items():
                times[op, phase].append(seconds / len(named[op]))
                hosts[op, phase].append(host / len(named[op]))
            for phase, totals in sums.items():
                within = sum(seconds for (_, passed), (seconds, _) in inside.items() if passed == phase)
                totals.append(max(watched.times[phase][0], within))
    run.clear()
    timings = {
        key: timing_of(totals, median(hosts[key]) if device.cuda else None, 1, None, PowerReading())
        for key, totals in times.items()
    }
    return Parts(
        timings,
        {op: type(modules[0]).__name__ for op, modules in named.items()},
        {phase: Way(median(totals), median(plain.times[phase])) for phase, totals in sums.items()},
    )
