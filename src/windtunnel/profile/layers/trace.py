"""Kernels and gaps of a stack's passes from the profiler, as sums for the closure check and as rows."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.profile.device import Device
from windtunnel.profile.layer_timing import PHASES, Clock, Run, Tick
from windtunnel.profile.layers.shapes import FORMATS, NO_WORK, class_of, moved_bytes, sizes
from windtunnel.profile.power import PowerReading
from windtunnel.profile.timing import KernelTiming, timing_of
from windtunnel.profile.trace import Slice, Trace, profile_call
from windtunnel.records import OPS, kernel_classes
from windtunnel.records.work import with_work


class Busy(NamedTuple):
    """Of one pass: seconds in kernels, seconds between them, and their number (on a CPU: of operators)."""

    kernels: float
    gaps: float
    launches: int


@dataclass(frozen=True)
class Traced:
    """Traces of a stack's forward and backward, the times of plain passes in turn with them, and what the profiler costs (`cost`).

    `part_of`: the stack's module paths -> what they are.
    """

    traces: list[Trace]
    plain: dict[str, KernelTiming]
    cost: float
    part_of: dict[str, str]


def trace_passes(run: Run, module: Any, part_of: dict[str, str], device: Device, repeats: int, tick: Tick) -> Traced:
    """One trace of forward and backward a repetition, and plain passes in turn.

    The profiler's clock also runs while other programs use a CPU, so a trace is scaled to the thread's own time: each pass by its
    own share, since others may have taken the core in the one and not in the other.
    """
    clock = Clock(replace(run, update=None), device)
    points: list[tuple[Any, float]] = []

    def run_once() -> None:
        tick()
        run.clear()
        points[:] = [(device.mark(), time.perf_counter())]
        out = run.forward()
        points.append((device.mark(), time.perf_counter()))
        run.backward(out)
        points.append((device.mark(), time.perf_counter()))

    traces = []
    for _ in range(repeats):
        trace = profile_call(run_once, device, module)
        traces.append(trace if device.cuda else trace.scaled_by_phase(shares(points, device)))
        for number in range(3):
            clock.repeat(keep=number > 0)  # the first pass after the profiler differs from the others
    run.clear()
    return Traced(traces, clock.timings(), operator_cost(device), part_of)


def shares(points: list[tuple[Any, float]], device: Device) -> dict[str, float]:
    """The device's seconds over those of the clock, of the two passes between three points, relative to both passes together."""
    own = [device.seconds_between(begin[0], end[0]) for begin, end in pairwise(points)]
    wall = [end[1] - begin[1] for begin, end in pairwise(points)]
    both = sum(own) / sum(wall)
    return {phase: mine / seconds / both for phase, mine, seconds in zip(PHASES, own, wall, strict=False)}


def operator_cost(device: Device, count: int = 300) -> float:
    """Seconds by which the profiler slows one operator of a CPU, from a chain of small ones; on a GPU kernels run beside it."""
    if device.cuda:
        return 0.0
    x = device.torch.ones(8)

    def chain() -> None:
        for _ in range(count):
            x.add_(1.0)

    plain, slow = [], []
    for _ in range(5):
        slow.append(profile_call(chain, device).seconds)
        for _ in range(3):
            begin = device.mark()
            chain()
            plain.append(device.seconds_between(begin, device.mark()))
    return max(0.0, min(slow) - min(plain)) / count


def busy_times(taken: list[Trace], phase: str) -> Busy:
    """Medians over traces. The wait before the first kernel of all is not a gap."""
    kernels, gaps, launches = [], [], []
    for trace in taken:
        inside = [one for one in trace.slices if one.phase == phase]
        kernels.append(sum(one.seconds for one in inside))
        gaps.append(sum(one.gap for one in inside) - (inside[0].gap if inside and phase == "forward" else 0.0))
        launches.append(len(inside))
    return Busy(median(kernels), median(gaps), round(median(launches)))


def by_part(taken: list[Trace], part_of: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Kernel seconds of one execution by (part, phase): the median over traces of the mean over parts of that name.

    `part_of`: module path -> the part's name; a kernel belongs to the part whose path encloses its module's.
    """
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * len(taken))
    for number, trace in enumerate(taken):
        for one in trace.slices:
            words = one.module.split(".")
            paths = (".".join(words[:length]) for length in range(len(words), 0, -1))
            part = next((part_of[path] for path in paths if path in part_of), None)
            if part is not None:
                sums[part, one.phase][number] += one.seconds
    equals = Counter(part_of.values())
    return {(part, phase): median(seconds) / equals[part] for (part, phase), seconds in sums.items()}


LAUNCH = re.compile(r"^(cuda|cu[A-Z]|hip)|^\(")
"""What stands for the operator of a kernel where the trace has none: the call that launched it, or words in brackets."""

TENSOR_CORES = re.compile(r"tf32|tensorop")
"""Kernels of CUTLASS and cuBLAS that compute products of fp32 numbers in tf32."""

NAMELESS = "no operator in the trace: class by the kernel's name, no sizes; its number format is not known"


HELPER = "a shorter kernel of an operator that launches several: class by its name, no sizes"


def kernel_rows(taken: list[Trace]) -> list[dict[str, Any]]:
    """One row for each distinct (module, pass, operator, kernel, shapes), over all times it ran.

    Operators of a CPU that only describe tensors are left out. Of an operator that launches several kernels the longest has its
    sizes: the others clear, convert or add up. `name` is the module's path without layer numbers, and the operator;
    `note` says the shapes of the operator's inputs.
    """
    groups: dict[tuple[Any, ...], list[Slice]] = defaultdict(list)
    for trace in taken:
        for one in trace.slices:
            described = one.kernel == one.op and (not one.op.startswith("aten::") or NO_WORK.search(one.op))
            if one.seconds > 0 and not described:
                module = ".".join(part for part in one.module.split(".") if not part.isdigit())
                groups[module, one.phase, one.op, one.kernel, one.shapes, one.dtypes].append(one)
    rows = []
    longest = _longest_of_calls(groups)
    for (module, phase, op, kernel, shapes, dtypes), same in groups.items():
        timing = timing_of([one.seconds for one in same], None, 1, None, PowerReading())
        dtype = next((FORMATS[name] for name in dtypes if name in FORMATS), "")
        dtype = "tf32" if dtype == "fp32" and TENSOR_CORES.search(kernel) else dtype
        listed = " ".join("x".join(map(str, shape)) for shape in shapes if shape)
        helps = 2 * sum(one is longest[one.call, op] for one in same) < len(same)
        kind = class_of(op) if not (helps or LAUNCH.search(op)) else _class_by_name(kernel)
        known = {"op": kind, "phase": phase, "dtype": dtype or "fp32", **({} if helps else sizes(op, shapes))}
        if known["op"] == "attention" and "batch" in known:
            known["causal"] = True  # every decoder's is; the profiler does not say it
        worked = {"flops": None, "bytes": None} if helps else with_work(known)
        counted = helps or known["op"] in ("gemm", "attention")
        moved = worked["bytes"] if counted else moved_bytes(op, shapes, dtype)
        rows.append(
            {
                "op": kind,
                "name": f"{module}:{op}" if module else op,
                "phase": phase,
                "kernel": kernel,
                "dtype": dtype,
                "launches": 1,
                "note": HELPER if helps else f"inputs {listed}" if listed else NAMELESS if LAUNCH.search(op) else None,
                **{name: value for name, value in known.items() if name not in ("op", "phase", "dtype")},
                "flops": worked["flops"] if dtype else None,
                "bytes": moved if dtype else None,
                **timing.fields(),
            }
        )
    return rows


def _longest_of_calls(groups: Mapping[tuple[Any, ...], list[Slice]]) -> dict[tuple[float, str], Slice]:
    """The longest kernel of each call of an operator, by when it began and its name."""
    longest: dict[tuple[float, str], Slice] = {}
    for one in (each for same in groups.values() for each in same):
        key = one.call, one.op
        if key not in longest or one.seconds > longest[key].seconds:
            longest[key] = one
    return longest


def _class_by_name(kernel: str) -> str:
    """The class of a kernel that no operator launched, of records.OPS, by its name."""
    found = kernel_classes.class_of(kernel)
    return found if found in OPS else "elementwise"
