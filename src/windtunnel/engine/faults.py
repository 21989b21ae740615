"""The door of the fault simulation (cpp/faults/faults.h, which states its rules): work that faults interrupt, run many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core

PARTS = ("useful", "slow", "save", "drag", "replay", "detect", "diagnose", "repair", "wait", "init", "load")
"""Where wall time goes, in the core's order. `useful`: work that was not lost; `slow`: lost to slow places; `drag`: lost beside
flushes; `replay`: work done again; the rest are phases of recoveries."""

SHAPES = ("fixed", "exponential", "lognormal", "uniform")
_CHUNK = 200


@dataclass(frozen=True)
class Law:
    """A random duration in seconds by its mean; shapes and `spread` as in cpp/faults/law.h. A negative mean: never."""

    mean: float = 0.0
    shape: str = "fixed"
    spread: float = 0.0


_ZERO = Law()


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault. `rate` in 1/s of wall time; `gap` with a mean above zero in place of it. The rest as in
    cpp/faults/faults.h."""

    rate: float = 0.0
    gap: Law = _ZERO
    detect: Law = _ZERO
    diagnose: Law = _ZERO
    by_hand: Law = _ZERO
    repair: Law = _ZERO
    automatic: float = 1.0
    slows: float = 1.0
    returns: float = 0.0
    after: Law = _ZERO
    replaces: bool = False
    restarts: bool = True
    saves_first: bool = False
    in_recovery: bool = True


@dataclass(frozen=True)
class FaultTask:
    """Work that is interrupted: seconds of undisturbed work, the wall time at which a run is cut off, and the costs of marks,
    starts and spare places."""

    work: float
    horizon: float
    interval: float
    save: float = 0.0
    flush: float = 0.0
    drag: float = 0.0
    spares: int = 0
    swap: Law = _ZERO
    spare_repair: Law = _ZERO
    queue: Law = Law(-1.0)
    init: Law = _ZERO
    load: Law = _ZERO


@dataclass(frozen=True)
class FaultRuns:
    """R runs."""

    wall: Floats
    """[R] seconds."""
    parts: Floats
    """[R, len(PARTS)] seconds that add up to `wall`."""
    count: Int64s
    """[R, kinds] faults."""
    done: Uint8s = field(repr=False)


def run(
    task: FaultTask,
    kinds: Sequence[FaultKind],
    replicas: int,
    seed: int = 1,
    threads: int = 1,
    progress: Callable[[float], object] | None = None,
) -> FaultRuns:
    """`replicas` independent runs; equal for equal `seed`, whatever `threads`. EngineError for numbers that are out of bounds.

    `progress` is called with the finished share.
    """
    row = [task.work, task.horizon, task.interval, task.save, task.flush, task.drag, float(task.spares)]
    head = np.array([*row, *_laws(task.swap, task.spare_repair, task.queue, task.init, task.load)])
    rows = np.array([number for kind in kinds for number in _kind(kind)], dtype=np.float64)
    answers = []
    try:
        for first in range(0, replicas, _CHUNK):
            count = min(_CHUNK, replicas - first)
            answers.append(_core.faults_run(task=head, kinds=rows, seed=seed, first=first, count=count, threads=threads))
            if progress is not None:
                progress((first + count) / replicas)
    except _core.CoreError as error:
        raise EngineError(f"faults: {error}") from None
    wall, parts, count_of, done = (np.concatenate([a[key] for a in answers]) for key in ("wall", "parts", "count", "done"))
    return FaultRuns(wall, parts, count_of, done)


def _kind(kind: FaultKind) -> list[float]:
    flags = [kind.replaces, kind.restarts, kind.saves_first, kind.in_recovery]
    plain = [kind.rate, kind.automatic, kind.slows, kind.returns, *map(float, flags)]
    return plain + _laws(kind.gap, kind.detect, kind.diagnose, kind.by_hand, kind.repair, kind.after)


def _laws(*laws: Law) -> list[float]:
    return [number for law in laws for number in (float(SHAPES.index(law.shape)), law.mean, law.spread)]
