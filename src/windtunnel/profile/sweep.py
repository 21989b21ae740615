"""A sweep over kernels: the plan in the order of value, and the loop that measures it within the budget."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import EngineError, UnknownName
from windtunnel.profile.closure import Agreement, agreement, run_seeded
from windtunnel.profile.device import Device
from windtunnel.profile.kernels import CLASSES, Bench, KernelCase, Scope, Unavailable
from windtunnel.profile.kernels.case import Run
from windtunnel.profile.kernels.launch import graph_of
from windtunnel.profile.power import Meter
from windtunnel.profile.session import Report, Session
from windtunnel.profile.timing import KernelTiming, Protocol, measure, measure_in_turn
from windtunnel.records import MODES

TURN = 2.0
"""Last levels of cache that kernels in turn move together, where it is not known what a step touches."""

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
    between: float = 0.0,
) -> SweepOutcome:
    """Measures `cases` in their order into `session`; ends when all are done, after `budget` seconds, or if `report` requests it.

    On a processor as many in turn as move `between` B together, what a step touches; 0: twice what its last level holds. A shape
    that does not fit is a row with status oom. Raises EngineError if the device fails; measured rows are kept.
    """
    began = time.monotonic()
    outcome = SweepOutcome()
    waiting = [case for case in cases if not session.has_row(case.key)]
    outcome.resumed = len(cases) - len(waiting)
    left = list(waiting)
    sweeper = _Sweeper(device, session, outcome, meter, protocol or Protocol(), source)

    def is_over() -> bool:
        spent = time.monotonic() - began
        share = max(1.0 - len(left) / len(waiting), spent / budget if budget else 0.0)
        outcome.stopped = outcome.stopped or report(min(1.0, share))
        return outcome.stopped or (budget is not None and spent >= budget)

    with session:
        while left:
            if outcome.stopped or is_over():
                outcome.left = len(left)
                break
            if device.cuda or left[0].mode != "eager":
                sweeper.measure_alone(left.pop(0))
            else:
                ends = math.inf if budget is None else began + budget
                sweeper.measure_in_turn(left, between or TURN * device.l2, ends, is_over)
    outcome.seconds = time.monotonic() - began
    return outcome


@dataclass
class _Sweeper:
    """What a sweep measures with, and where its rows and counts go."""

    device: Device
    session: Session
    outcome: SweepOutcome
    meter: Meter | None
    protocol: Protocol
    source: str

    def measure_alone(self, case: KernelCase) -> None:
        """A row of a case whose repetitions follow each other, each after a flush of the cache."""
        timing = self._try_to(case, lambda: time_case(case, self.device, self.meter, self.protocol))
        if timing is not None:
            self._keep(case, timing, compare_modes(case, self.device))

    def measure_in_turn(self, left: list[KernelCase], between: float, ends: float, is_over: Callable[[], bool]) -> None:
        """Rows of the first cases of `left`, which are taken off it: as many as move `between` B, all of them where the others
        move less, but no more than half of the time until `ends` lasts for, and none once it `is_over`."""
        ready: list[tuple[KernelCase, Run]] = []
        moved, lasts, allowed = 0.0, 0.0, 0.5 * (ends - time.monotonic())
        behind = sum(case.bytes or 0.0 for case in left if case.mode == "eager")
        while left and left[0].mode == "eager" and lasts < allowed and (moved < between or behind < between):
            if ready and is_over():
                break
            case = left.pop(0)
            behind -= case.bytes or 0.0
            if (tried := self._try_to(case, partial(_run_once, case, self.device))) is not None:
                ready.append((case, tried[0]))
                moved += case.bytes or 0.0
                lasts += self.protocol.on(self.device).lasts(tried[1], 0.0)
        turns = [(run, partial(case.holding, self.device.torch)) for case, run in ready]
        for (case, _), timing in zip(ready, measure_in_turn(turns, self.device, self.protocol, ends), strict=True):
            if timing is None:
                left.append(case)
            else:
                self._keep(case, timing, Agreement(), moved - (case.bytes or 0.0))

    def _try_to(self, case: KernelCase, attempt: Callable[[], Any]) -> Any:
        """What `attempt` returns; None, with the reason counted, if the case cannot run here. EngineError if the device fails."""
        device, outcome = self.device, self.outcome
        if not fits(case, device):
            _skip(outcome, "more than this host's free memory")
            return None
        try:
            return attempt()
        except Unavailable as error:
            _skip(outcome, str(error))
            return None
        except Exception as error:
            if device.out_of_memory(error):
                self.session.add({**self._row(case), "seconds": None, "status": "oom", "note": "does not fit"})
                outcome.oom += 1
                return None
            if device.cuda and _is_broken(device):
                self.session.save()
                what = f"{case.name} {case.phase} ({case.m} x {case.n} x {case.k} {case.dtype})"
                raise EngineError(f"{device.name} failed on {what}: {error}") from error
            message = (str(error) or type(error).__name__).splitlines()[0][:160]
            _skip(outcome, f"{case.op} {case.name}, {case.mode}: {message}")
            return None
        finally:
            device.forget()

    def _row(self, case: KernelCase) -> dict[str, Any]:
        return {**case.fields(), "source": self.source or f"windtunnel profile sweep on {self.device.name}"}

    def _keep(self, case: KernelCase, timing: KernelTiming, compared: Agreement, between: float | None = None) -> None:
        words = [compared.differs, case.note or "", f"{timing.loops} in a row, warm cache" if timing.loops > 1 else ""]
        checked = {"checked_against": compared.what or None, "max_error": compared.error, "between_bytes": between}
        status = "open" if compared.differs else "ok"
        note = "; ".join(word for word in words if word) or None
        refused = self.session.add({**self._row(case), **timing.fields(), **checked, "status": status, "note": note})
        if refused:
            _skip(self.outcome, refused)
        else:
            self.outcome.measured += 1


def _run_once(case: KernelCase, device: Device) -> tuple[Run, float]:
    """The run of a case, and the seconds that it took once. Raises Unavailable, or what its run raises."""
    with case.holding(device.torch):
        run = make_run(case, device)
        clock = time.perf_counter()
        run()
        return run, time.perf_counter() - clock


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
