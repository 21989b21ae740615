"""Random conditions of runs, and how far the closed form is from the simulation on them."""

from __future__ import annotations

import numpy as np

from windtunnel.goodput.closed import steady
from windtunnel.goodput.conditions import CheckpointCost, Conditions, loses_work
from windtunnel.goodput.simulate import simulate
from windtunnel.spec.reliability import Duration, Failure

DAY = 86400.0


def duration(draw: np.random.Generator, low: float, high: float) -> Duration:
    """A duration of any law whose mean lies between `low` and `high` seconds, evenly in the logarithm."""
    law = draw.choice(["fixed", "exponential", "lognormal", "uniform"])
    spread = {"lognormal": draw.uniform(0.2, 1.2), "uniform": draw.uniform(0.1, 1.0)}.get(str(law), 0.0)
    return Duration(mean=float(np.exp(draw.uniform(np.log(low), np.log(high)))), law=law, spread=float(spread))


def setting(draw: np.random.Generator, wide: bool) -> Conditions:
    """A random setting: 8 to 4,096 nodes, a failure every 30 minutes to 3 days, recoveries of one to 40 minutes."""
    nodes = int(2 ** draw.uniform(3, 12))
    mtbf = float(np.exp(draw.uniform(np.log(1800.0), np.log(3 * DAY))))
    shares = draw.dirichlet(np.ones(3))
    kinds: dict[str, Failure] = {}
    for name, share in zip(("crash", "hang", "storage"), shares, strict=True):
        kinds[name] = Failure(
            per_node_day=float(share * DAY / mtbf / nodes),
            detect=duration(draw, 1.0, 900.0 if name == "hang" else 120.0),
            diagnose=duration(draw, 5.0, 600.0),
            automatic=float(draw.choice([1.0, draw.uniform(0.8, 1.0)])),
            by_hand=duration(draw, 300.0, 1800.0),
            replaces_node=bool(draw.random() < 0.6),
        )
    if wide:
        kinds["planned"] = Failure(
            per_job_day=float(draw.uniform(0.1, 1.0)), repair=duration(draw, 300.0, 1800.0), saves_first=True
        )
        kinds["slow_node"] = Failure(
            per_job_day=float(draw.uniform(0.05, 1.0)),
            detect=duration(draw, 600.0, 7200.0),
            slows=1.1,
            saves_first=True,
            replaces_node=True,
        )
        kinds["network"] = Failure(per_job_day=float(draw.uniform(0.5, 5.0)), repair=duration(draw, 5.0, 60.0), restarts=False)
        kinds["bad_node"] = Failure(
            per_job_day=float(draw.uniform(0.05, 0.5)),
            detect=duration(draw, 10.0, 60.0),
            returns=float(draw.uniform(0.1, 0.7)),
            replaces_node=True,
        )
    flush = float(draw.choice([0.0, draw.uniform(1.0, 120.0)]))
    cost = CheckpointCost(
        1e12,
        float(np.exp(draw.uniform(np.log(0.2), np.log(60.0)))),
        flush,
        float(draw.uniform(0.0, 0.2)),
        float(draw.uniform(5.0, 180.0)),
    )
    rate = sum(kind.per_node_day * nodes for kind in kinds.values() if loses_work(kind)) / DAY
    young = float(np.sqrt(2.0 * cost.price / rate))
    interval = max(young * float(np.exp(draw.uniform(-1.0, 1.0))), 1.5 * flush, 5.0)
    repair = duration(draw, 3600.0, 3 * DAY)
    need = rate * repair.mean
    return Conditions(
        nodes=nodes,
        kinds=tuple(kinds.items()),
        checkpoint=cost,
        interval=interval,
        spares=int(need + draw.uniform(1.0, 4.0) * np.sqrt(need) + 1.0),
        swap=duration(draw, 5.0, 300.0),
        node_repair=repair,
        queue=duration(draw, 60.0, 1800.0),
        init=duration(draw, 10.0, 300.0),
    )


def differences(settings: int, seed: int, wide: bool = False, failures: float = 60_000.0) -> tuple[np.ndarray, np.ndarray]:
    """(closed ETTR, simulated less closed ETTR) of random settings; each simulation sees about `failures` failures."""
    draw = np.random.default_rng(seed)
    closed, gaps = [], []
    for number in range(settings):
        run = setting(draw, wide)
        answer = steady(run)
        replicas = 200
        horizon = failures / replicas * answer.mtbf
        simulated = simulate(run, answer.interval, float("inf"), horizon, replicas, seed=number)
        closed.append(answer.ettr)
        gaps.append(simulated.ettr.mean - answer.ettr)
    return np.array(closed), np.array(gaps)
