"""A sweep over kernels: the plan in the order of value, and the loop that measures it within the budget."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from windtunnel.base.errors import EngineError, UnknownName
from windtunnel.profile.closure import Agreement, agreement, run_seeded
from windtunnel.profile.device import Device
from windtunnel.profile.kernels import CLASSES, Bench, KernelCase, Scope, Unavailable
from windtunnel.profile.kernels.case import Run
from windtunnel.profile.kernels.launch import graph_of
from windtunnel.profile.power import Meter
from windtunnel.profile.session import Report, Session
from windtunnel.profile.timing import Protocol, measure
from windtunnel.records import MODES

MODE_COST = {"eager": 0.0, "cuda_graph": 3.0, "compile": 5.0}
"""Added to the rank of a case in another mode. Compiling takes seconds, a measurement a twentieth of a second."""


@dataclass
class SweepOutcome:
    """The outcome of a sweep. `left`: cases beyond the budget; `rows`: of the file; `skipped`: reason -> number of cases that were
    not measured."""

    measured: int = 0
    resumed: int = 0
    oom: int = 0
    left: int = 0
    rows: int = 0
    stopped: bool = False
    seconds: float = 0.0
    skipped: dict[str, int] = field(default_factory=dict)


def plan(scope: Scope, classes: Sequence[str] = (), modes: Sequence[str] = ("eager",)) -> list[KernelCase]:
    """Distinct cases, the most valuable first; equal ranks in the order of `CLASSES`. Raises UnknownName for a class or mode.

    Classes are sorted separately by rank and then merged, so that a class of many cases does not displace the others.
    """
    for name in classes:
        if name not in CLASSES:
            raise UnknownName("--classes", name, list(CLASSES))
    for mode in modes:
        if mode not in MODES:
            raise UnknownName("--modes", mode, MODES)
    seen: set[str] = set()
    lists = []
    for at, name in enumerate(name for name in CLASSES if not classes or name in classes):
        planned = []
        for case in CLASSES[name](scope):
            for one in _in_modes(case, modes, scope.cuda):
                if one.key not in seen:
                    seen.add(one.key)
                    planned.append(one)
        planned.sort(key=lambda case: case.rank)
        lists.append([(case.rank, at, place, case) for place, case in enumerate(planned)])
    return [case for *_, case in heapq.merge(*lists)]


def _in_modes(case: KernelCase, modes: Sequence[str], cuda: bool) -> Iterable[KernelCase]:
    if case.mode != "eager":  # a launch class that is always a graph
        yield case
        return
    for mode in modes:
        if mode == "eager" or mode in case.modes and (cuda or mode != "cuda_graph"):
            yield replace(case, mode=mode, rank=case.rank + MODE_COST[mode])


def sweep(
    cases: Sequence[KernelCase],
    device: Device,
    session: Session,
    *,
    budget: float | None = None,
    meter: Meter | None = None,
    protocol: Protocol | None = None,
    report: Report = lambda share: False,
    source: str = "",
) -> SweepOutcome:
    """Measures `cases` in their order into `session`; ends when all are done, after `budget` seconds, or if `report` requests it.

    A shape that does not fit is a row with status oom. Raises EngineError if the device fails; measured rows are kept.
    """
    began = time.monotonic()
    outcome = SweepOutcome()
    waiting = [case for case in cases if not session.has_row(case.key)]
    outcome.resumed = len(cases) - len(waiting)
    with session:
        for number, case in enumerate(waiting):
            spent = time.monotonic() - began
            share = max(number / len(waiting), spent / budget if budget else 0.0)
            outcome.stopped = report(min(1.0, share))
            if outcome.stopped or (budget is not None and spent >= budget):
                outcome.left = len(waiting) - number
                break
            _one(case, device, session, outcome, meter, protocol, source)
    outcome.seconds = time.monotonic() - began
    return outcome


def _one(
    case: KernelCase,
    device: Device,
    session: Session,
    outcome: SweepOutcome,
    meter: Meter | None,
    protocol: Protocol | None,
    source: str,
) -> None:
    row: dict[str, Any] = {**case.fields(), "source": source or f"windtunnel profile sweep on {device.name}"}
    if not fits(case, device):
        _skip(outcome, "more than this host's free memory")
        return
    try:
        timing = time_case(case, device, meter, protocol)
    except Unavailable as error:
        _skip(outcome, str(error))
        return
    except Exception as error:
        if device.out_of_memory(error):
            session.add({**row, "seconds": None, "status": "oom", "note": "does not fit"})
            outcome.oom += 1
            return
        if device.cuda and _is_broken(device):
            session.save()
            what = f"{case.name} {case.phase} ({case.m} x {case.n} x {case.k} {case.dtype})"
            raise EngineError(f"{device.name} failed on {what}: {error}") from error
        message = (str(error) or type(error).__name__).splitlines()[0][:160]
        _skip(outcome, f"{case.op} {case.name}, {case.mode}: {message}")
        return
    finally:
        device.forget()
    compared = compare_modes(case, device)
    words = [compared.differs, case.note or "", f"{timing.loops} in a row, warm cache" if timing.loops > 1 else ""]
    checked = {"checked_against": compared.what or None, "max_error": compared.error}
    status = "open" if compared.differs else "ok"
    note = "; ".join(word for word in words if word) or None
    refused = session.add({**row, **timing.fields(), **checked, "status": status, "note": note})
    if refused:
        _skip(outcome, refused)
    else:
        outcome.measured += 1


def time_case(case: KernelCase, device: Device, meter: Meter | None = None, protocol: Protocol | None = None) -> Any:
    """`timing.measure` of a case in its mode. Raises Unavailable, or what its run raises."""
    with case.holding(device.torch):
        return measure(make_run(case, device), device, protocol, meter)


def compare_modes(case: KernelCase, device: Device) -> Agreement:
    """The outputs of a compiled case beside those of the same case in eager mode; nothing for other modes, whose kernels are those
    of eager mode, and for a case that returns no tensor."""
    if case.mode != "compile":
        return Agreement()
    outputs = []
    for mode in ("compile", "eager"):
        other = replace(case, mode=mode)
        with other.holding(device.torch):
            outputs.append(run_seeded(device.torch, partial(make_run, other, device)))
    return agreement("eager", outputs[0], outputs[1], case.dtype)


def make_run(case: KernelCase, device: Device) -> Run:
    """The run of a case in its mode, operands and all."""
    bench = Bench(device, case.mode)
    if case.mode == "cuda_graph" and "cuda_graph" in case.modes:
        return graph_of(bench, lambda: case.make(bench))
    return case.make(bench)


def fits(case: KernelCase, device: Device) -> bool:
    """Whether the case is safe to run: a GPU reports that it is full, but a host starts to swap and affects other programs."""
    return device.cuda or 6.0 * (case.bytes or 0.0) < 0.5 * device.free()


def _skip(outcome: SweepOutcome, why: str) -> None:
    outcome.skipped[why] = outcome.skipped.get(why, 0) + 1


def _is_broken(device: Device) -> bool:
    """Whether the device no longer responds, as after an illegal access."""
    try:
        device.torch.zeros(1, device=device.place)
        device.synchronize()
    except RuntimeError:
        return True
    return False
