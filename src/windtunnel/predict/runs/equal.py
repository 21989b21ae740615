"""Steps of equal ranks: all calls in closed form, or all but those of the whole job over a network engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windtunnel.engine import Timeline, _core, run
from windtunnel.memory import memory_of
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import Lowered, lower
from windtunnel.predict.runs.folded import fold
from windtunnel.predict.runs.setting import Setting
from windtunnel.predict.runs.step_run import StepRun, breakdown
from windtunnel.workload import Workload

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic
    from windtunnel.predict.engines.fidelity import EngineRun

Progress = Callable[[float], object]


@dataclass(frozen=True)
class StepProgram:
    """A step that is ready to run; `engine` carries the calls that run over a network engine."""

    workload: Workload
    costs: Costs
    lowered: Lowered
    engine: EngineRun | None = None

    def execute(
        self, progress: Progress | None = None, record_ops: Iterable[int] = (), critical_path: bool = True
    ) -> tuple[Timeline, _core.Network | None]:
        """Runs the step once; returns its timeline and the network behind it."""
        network = None if self.engine is None else self.engine.network(progress)
        follows = None if self.engine is None else self.engine.follows
        return run(self.lowered.program, record_ops, critical_path, network, follows), network


def closed_program(workload: Workload, costs: Costs) -> StepProgram:
    """A step whose calls take the closed form's seconds."""
    return StepProgram(workload, costs, lower(workload, costs))


def engine_program(workload: Workload, costs: Costs, setting: Setting) -> StepProgram:
    """A step whose calls run over a network engine."""
    from windtunnel.predict.engines.fidelity import EngineRun, Fidelity  # imported lazily: slow to import

    fidelity = Fidelity.of(setting.network, costs.calls, setting.seed, setting.skip, (), setting.loads, setting.threads)
    live = NetworkCalls(costs.calls)
    lowered = lower(workload, costs, live)
    return StepProgram(workload, costs, lowered, EngineRun(fidelity, live))


def run_closed(workload: Workload, costs: Costs) -> StepRun:
    """The run of a `closed_program`, of which a steady middle is folded, without its critical path."""
    folded = fold(workload, costs)
    if folded is not None:
        shorter = StepProgram(folded.workload, costs, folded.lowered)
        return replace(_read(shorter, costs, folded.timeline), workload=workload, folded=True)
    program = closed_program(workload, costs)
    return _read(program, costs, program.execute(critical_path=False)[0])


def run_engine(workload: Workload, costs: Costs, setting: Setting) -> StepRun:
    """The run of an `engine_program`; its costs have the engine's seconds for each call."""
    return _run(engine_program(workload, costs, setting), setting)


def _run(program: StepProgram, setting: Setting) -> StepRun:
    costs = program.costs
    timeline, network = program.execute(setting.progress)
    traffic = None
    if program.engine is not None and network is not None:
        traffic, means = program.engine.finish(network, timeline.makespan)
        costs = replace(costs, calls=costs.calls.with_measured(means))
    return _read(program, costs, timeline, traffic)


def _read(program: StepProgram, costs: Costs, timeline: Timeline, traffic: Traffic | None = None) -> StepRun:
    workload, job = program.workload, program.workload.job
    return StepRun(
        workload=workload,
        costs=(costs,) * job.plan.pp,
        lowered=program.lowered,
        timeline=timeline,
        memory=memory_of(job, workload),
        by_stage=tuple(breakdown(timeline, costs, stage) for stage in range(job.plan.pp)),
        step=timeline.makespan,
        peak=job.cluster.gpus * job.cluster.gpu.peak[job.runtime.precision],
        traffic=traffic,
    )
