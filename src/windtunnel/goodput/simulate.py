"""The conditions of a run as the core's task and kinds, and what its runs say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.faults import PARTS, FaultKind, FaultTask, Law
from windtunnel.engine.faults import run as run_faults
from windtunnel.goodput.conditions import DAY, Conditions, strikes_recovery
from windtunnel.spec.reliability import Duration, Failure

PERCENTILES = (10, 50, 90)


@dataclass(frozen=True)
class Percentiles:
    """Mean and percentiles over the runs."""

    mean: float
    p10: float
    p50: float
    p90: float

    @classmethod
    def of(cls, values: Floats) -> Percentiles:
        low, middle, high = np.percentile(values, PERCENTILES)
        return cls(float(values.mean()), float(low), float(middle), float(high))


@dataclass(frozen=True)
class Simulated:
    """What `replicas` runs did."""

    replicas: int
    seed: int
    ettr: Percentiles
    goodput: Percentiles
    days: Percentiles
    """Days of wall time."""
    trained_days: Percentiles
    finished: float
    """Share of runs that ended before they were cut off."""
    parts: dict[str, float]
    """Mean hours of a run, adding up to its wall time."""
    failures: dict[str, float]
    """Mean count by kind."""
    ettr_error: float
    """Standard error of the mean ETTR."""


def simulate(
    run: Conditions,
    interval: float,
    work: float,
    horizon: float,
    replicas: int,
    seed: int = 1,
    threads: int = 1,
    progress: Callable[[float], object] | None = None,
) -> Simulated:
    """`replicas` runs of `work` seconds of training, cut off at `horizon` seconds of wall time. `work` may be infinite."""
    cost = run.checkpoint
    task = FaultTask(
        work=work,
        horizon=horizon,
        interval=interval,
        save=cost.save,
        flush=cost.flush,
        drag=cost.drag,
        spares=run.spares,
        swap=_law(run.swap),
        spare_repair=_law(run.node_repair),
        queue=_law(run.queue) if run.queue is not None else Law(-1.0),
        init=_law(run.init),
        load=Law(cost.load),
    )
    ran = run_faults(task, [_kind(run, kind) for _, kind in run.kinds], replicas, seed, threads, progress)
    useful = ran.parts[:, PARTS.index("useful")]
    ettr = (useful + ran.parts[:, PARTS.index("slow")]) / ran.wall
    return Simulated(
        replicas,
        seed,
        ettr=Percentiles.of(ettr),
        goodput=Percentiles.of(useful / ran.wall),
        days=Percentiles.of(ran.wall / DAY),
        trained_days=Percentiles.of(useful / DAY),
        finished=float(ran.done.mean()),
        parts={name: float(seconds) / 3600.0 for name, seconds in zip(PARTS, ran.parts.mean(axis=0), strict=True)},
        failures={name: float(ran.count[:, at].mean()) for at, (name, _) in enumerate(run.kinds)},
        ettr_error=float(ettr.std() / np.sqrt(replicas)),
    )


def _law(duration: Duration) -> Law:
    return Law(duration.mean, duration.law, duration.spread)


def _kind(run: Conditions, kind: Failure) -> FaultKind:
    return FaultKind(
        rate=run.random_rate(kind),
        gap=_law(kind.gap) if kind.gap is not None else Law(),
        detect=_law(kind.detect),
        diagnose=_law(kind.diagnose),
        by_hand=_law(kind.by_hand),
        repair=_law(kind.repair),
        automatic=kind.automatic,
        slows=kind.slows,
        returns=kind.returns,
        after=_law(kind.after),
        replaces=kind.replaces_node,
        restarts=kind.restarts,
        saves_first=kind.saves_first,
        in_recovery=strikes_recovery(kind),
    )
