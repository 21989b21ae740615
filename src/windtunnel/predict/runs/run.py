"""Picks how a step is run: closed form, over a network engine, or with unequal ranks."""

from __future__ import annotations

from windtunnel.predict.price.costs import Costs
from windtunnel.predict.price.mixed import MixedCosts
from windtunnel.predict.ranks.draws import draws_of
from windtunnel.predict.runs.equal import StepProgram, closed_program, engine_program, run_closed, run_engine
from windtunnel.predict.runs.setting import Setting
from windtunnel.predict.runs.step_run import StepRun
from windtunnel.predict.runs.unequal import drawn_program, run_unequal
from windtunnel.spec.job import Job
from windtunnel.workload import Workload, build


def run_step(workload: Workload, costs: Costs, setting: Setting) -> StepRun:
    """The step of `workload` at these `costs`."""
    if workload.job.unequal is not None:
        return run_unequal(workload, costs, setting)
    return run_closed(workload, costs) if setting.network == "closed" else run_engine(workload, costs, setting)


def program_of(job: Job, setting: Setting, draw: int | None = None) -> StepProgram:
    """The program that `run_step` runs for `job`; with unequal ranks that of drawn step number `draw`."""
    workload = build(job)
    costs = setting.price(workload)
    if job.unequal is not None and draw is not None:
        mixed = MixedCosts(workload, costs, setting.price)
        return drawn_program(workload, mixed, draws_of(job, job.unequal)[draw], setting).step
    return closed_program(workload, costs) if setting.network == "closed" else engine_program(workload, costs, setting)
