"""A job and its step time as the conditions of a run."""

from __future__ import annotations

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.goodput.checkpoint import BESIDE, checkpoint_cost, nodes_of
from windtunnel.goodput.conditions import Conditions
from windtunnel.goodput.stated import conditions_at
from windtunnel.predict.answer.startup import startup
from windtunnel.predict.prediction import SaveCost
from windtunnel.spec.job import Job
from windtunnel.spec.loading.catalog import names


def conditions_of(job: Job, step_time_s: float, exposed: float = 0.0) -> Conditions:
    """A run of `job` at `step_time_s` seconds a step, of which the share `exposed` waits for communication between
    nodes. SpecError for a job without `reliability`, and for an interval shorter than its checkpoint's write."""
    facts = job.reliability
    if facts is None:
        known = ", ".join(names("reliability"))
        raise SpecError("reliability", Nothing(), f"an entry of catalogue reliability ({known}), or a table", _example())
    cost = checkpoint_cost(job, facts.checkpoint, exposed)
    weight = job.cluster.gpus_of_node / facts.gpus_of_node if facts.gpus_of_node is not None else 1.0
    return conditions_at(facts, nodes_of(job), cost, step_time_s, weight, startup(job).seconds)


def with_saving(job: Job, saving: SaveCost | None) -> Job:
    """The job whose flush slows a step, and is written, as a step over an engine saw it; what the job states itself stays."""
    if saving is None or job.reliability is None:
        return job
    policy = job.reliability.checkpoint
    slower = max(0.0, saving.slowdown) + BESIDE if policy.slowdown is None else policy.slowdown
    measured = policy.model_copy(update={"slowdown": slower, "write": min(policy.write, saving.bytes / saving.beside_s)})
    return job.model_copy(update={"reliability": job.reliability.model_copy(update={"checkpoint": measured})})


def _example() -> str:
    return "For example --set reliability=llama3-2024."
