"""The calls of a step over the flow engine, counted: how often each runs, and the bytes on the links."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from windtunnel.engine import flow
from windtunnel.engine._core import FlowNetwork
from windtunnel.network.simulate.axis_calls import demand_of
from windtunnel.predict.engines.fidelity import EngineRun, Fidelity
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import Lowered, lower
from windtunnel.predict.runs.equal import StepProgram, engine_program
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job
from windtunnel.workload import Axis, Kind, Workload, build

FLOW = Setting(network="flow")


def executed(lowered: Lowered, workload: Workload, costs: Costs) -> Counter[CallKey]:
    """How often each call runs in all stages of a program; those of two stages count once."""
    program, ops = lowered.program, workload.ops
    counts: Counter[CallKey] = Counter()
    times = np.bincount(program.template[program.template >= 0], program.times[program.template >= 0], len(lowered.rows))
    for rows, runs in zip(lowered.rows, times.tolist(), strict=True):
        for row in [] if rows is None else rows[rows >= 0].tolist():
            if ops.kind[row] == Kind.COMM:
                counts[costs.call_of[row]] += int(runs)
    for calls in lowered.calls:
        for call, number in calls.items():
            counts[call] += number
    return Counter({call: n // 2 if call.axis is Axis.EMBEDDING else n for call, n in counts.items()})


def launched(live: NetworkCalls) -> Counter[CallKey]:
    """How often each call runs over the engine."""
    counts: Counter[CallKey] = Counter()
    for call, number in zip(live.calls, live.launches().tolist(), strict=True):
        counts[CallKey(call.comm, call.axis, call.size)] += number
    return counts


def over_flow(job: Job) -> tuple[Workload, Costs, StepProgram, EngineRun]:
    workload = build(job)
    costs = FLOW.price(workload)
    program = engine_program(workload, costs, FLOW)
    assert program.engine is not None
    return workload, costs, program, program.engine


def check_bytes(job: Job) -> None:
    """Every call of more than one rank runs over the engine as often as in closed form, and the links carry the bytes of all."""
    workload, costs, program, engine = over_flow(job)
    want = executed(lower(workload, costs), workload, costs)
    want = Counter({call: n for call, n in want.items() if engine.live.runs(call.axis)})
    assert launched(engine.live) == want
    _, network = program.execute()
    assert isinstance(network, FlowNetwork)
    use = flow.report(network)
    assert use.starts.tolist() == engine.live.launches().tolist()
    moved = sum((n * demand_of(engine.step.on, plan) for n, plan in zip(use.starts.tolist(), engine.step.plans, strict=True)), 0.0)
    assert use.use.bytes == pytest.approx(moved, rel=1e-6, abs=1.0)


def makespan_on_wider(workload: Workload, costs: Costs, factor: float) -> float:
    """Seconds of a step over flows whose links are `factor` times as fast, with the same calls."""
    fidelity = Fidelity.of("flow", costs.calls, 1, False)
    graph = replace(fidelity.machine.graph, link_rate=fidelity.machine.graph.link_rate * factor)
    live = NetworkCalls(costs.calls)
    lowered = lower(workload, costs, live)
    engine = EngineRun(replace(fidelity, machine=replace(fidelity.machine, graph=graph)), live)
    return StepProgram(workload, costs, lowered, engine).execute(critical_path=False)[0].makespan
