"""Sub-modules where they run: inside a stack of layers, by hooks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from torch import nn

from windtunnel.profile.device import Device
from windtunnel.profile.layers_hooks import Hooks
from windtunnel.profile.layers_timing import Run, Tick
from windtunnel.profile.modules.family import Family
from windtunnel.profile.modules.layer import Placed
from windtunnel.profile.power import Reading
from windtunnel.profile.timing import Timing, timing_of


@dataclass(frozen=True)
class Parts:
    """One execution of each sub-module by (op, phase); class names by op; and what a layer takes by phase with its hooks on."""

    timings: dict[tuple[str, str], Timing]
    names: dict[str, str]
    layer: dict[str, float]


def time_parts(run: Run, placed: Placed, family: Family, device: Device, warmup: int, repeats: int, tick: Tick) -> Parts:
    """Times of every sub-module of `placed`, over the mean of its equals in a repetition. Nothing waits inside a repetition."""
    named: dict[str, list[nn.Module]] = defaultdict(list)
    for layer in placed.stack.layers:
        for op, modules in family.parts(layer).items():
            named[op] += modules
    layers = len(placed.stack.layers)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    hosts: dict[tuple[str, str], list[float]] = defaultdict(list)
    sums: dict[str, list[float]] = {"forward": [], "backward": []}
    with Hooks(named, device) as hooks:
        for number in range(warmup + repeats):
            tick()
            run.clear()
            device.synchronize()
            begin = device.mark()
            out = run.forward()
            middle = device.mark()
            run.backward(out)
            end = device.mark()
            del out
            device.synchronize()
            inside = hooks.by_name()
            if number < warmup:
                continue
            for (op, phase), (seconds, host) in inside.items():
                times[op, phase].append(seconds / len(named[op]))
                hosts[op, phase].append(host / len(named[op]))
            for phase, whole in (("forward", device.between(begin, middle)), ("backward", device.between(middle, end))):
                within = sum(seconds for (_, passed), (seconds, _) in inside.items() if passed == phase)
                sums[phase].append(max(whole, within) / layers)
    run.clear()
    timings = {key: timing_of(taken, median(hosts[key]) if device.cuda else None, 1, None, Reading())
               for key, taken in times.items()}
    return Parts(timings, {op: type(modules[0]).__name__ for op, modules in named.items()},
                 {phase: median(taken) for phase, taken in sums.items()})
