"""The whole run at a step time, in closed form: cheap enough to ask for every plan of a search. A job and its step time as the
conditions of a run. Conditions from stated figures: of failures, and for published runs whose model or plan is not known also of
checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.goodput.checkpoint import BESIDE, STOP, checkpoint_cost, interval_of, nodes_of
from windtunnel.goodput.closed import Steady, steady
from windtunnel.goodput.conditions import DAY, CheckpointCost, Conditions
from windtunnel.predict.answer.startup import startup
from windtunnel.predict.prediction import SaveCost
from windtunnel.spec.job import Job
from windtunnel.spec.loading.catalog import names
from windtunnel.spec.reliability import Reliability


def stated_conditions(facts: Reliability, nodes: int, step_time_s: float) -> Conditions:
    """A run on `nodes` nodes whose steps take `step_time_s`. Blocking time and size have to be stated, or the time of each part.

    Networks between nodes and storage do not bound the storage's rates here. SpecError for a size that is needed and missing.
    """
    policy = facts.checkpoint
    size = policy.size
    if size is None and (policy.block is None or policy.load_time is None or policy.mode == "background"):
        raise SpecError("reliability.checkpoint.size", Nothing(), "bytes of a checkpoint, where no job says how large it is")
    size = size or 0.0
    writes = size / policy.write
    flush = writes if policy.mode == "background" else 0.0
    save = policy.block if policy.block is not None else STOP if flush else writes
    drag = policy.slowdown if policy.slowdown is not None else BESIDE if flush else 0.0
    load = policy.load_time if policy.load_time is not None else size / policy.read
    return conditions_at(facts, nodes, CheckpointCost(size, save, flush, drag, load), step_time_s)


def conditions_at(
    facts: Reliability, nodes: int, cost: CheckpointCost, step_time_s: float, weight: float = 1.0, set_up: float = 0.0
) -> Conditions:
    """A run on `nodes` nodes, each of which fails `weight` times as often as `facts` say; `set_up`: seconds of a start beyond what
    `facts` say. SpecError for an interval shorter than its checkpoint's write."""
    return Conditions(
        nodes=nodes,
        kinds=tuple(facts.kinds()),
        checkpoint=cost,
        interval=interval_of(facts.checkpoint, cost, step_time_s),
        step=step_time_s,
        spares=facts.spares_of(nodes),
        swap=facts.swap,
        node_repair=facts.node_repair,
        queue=facts.queue,
        weight=weight,
        init=facts.init.model_copy(update={"mean": facts.init.mean + set_up}),
    )


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


@dataclass(frozen=True)
class WholeRun:
    """The run of a job with failures. `days`: expected wall time, None if the job states no tokens or never ends; `ideal_days`:
    without failures and checkpoints."""

    ettr: float
    goodput: float
    days: float | None
    ideal_days: float | None
    interval_s: float
    mtbf_s: float


def run_of(job: Job, step_time_s: float, exposed: float = 0.0) -> WholeRun:
    """ETTR and expected days of the whole run of `job`, whose steps take `step_time_s` seconds without failures.

    `exposed`: share of a step that waits for communication between nodes, which a checkpoint's flush over the same NICs
    stretches. Closed form, no simulation. SpecError for a job without `reliability`.
    """
    run = conditions_of(job, step_time_s, exposed)
    answer = steady(run)
    ideal = ideal_seconds(job, step_time_s)
    days = None
    if ideal is not None and answer.progresses:
        days = expected_seconds(run, answer, ideal) / DAY
    return WholeRun(answer.ettr, answer.goodput, days, ideal / DAY if ideal is not None else None, answer.interval, answer.mtbf)


def ideal_seconds(job: Job, step_time_s: float) -> float | None:
    """Seconds of all steps without failures; None if the job states no tokens."""
    if job.tokens is None:
        return None
    return job.tokens / (job.plan.global_batch * job.plan.seq) * step_time_s


def expected_seconds(run: Conditions, answer: Steady, work: float) -> float:
    """Wall time of `work` seconds of training at the long-run pace, and the first start."""
    return work / answer.goodput + run.init.mean
