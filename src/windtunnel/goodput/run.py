"""The whole run at a step time, in closed form: cheap enough to ask for every plan of a search.

Its conditions are those of a job, with the seconds of its checkpoint, or stated figures: of failures, and for published runs whose
model or plan is not known also of checkpoints.
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.goodput.closed import Steady, steady
from windtunnel.goodput.conditions import DAY, CheckpointCost, Conditions
from windtunnel.memory.state import StateBytes, state_bytes_of
from windtunnel.memory.tiers import legs
from windtunnel.predict.answer.startup import startup
from windtunnel.predict.prediction import SaveCost
from windtunnel.spec.job import Job
from windtunnel.spec.loading.files import names
from windtunnel.spec.reliability import CheckpointPolicy, Reliability, check_room

MOST_TRAFFIC = 0.9
"""Share of the NICs' bandwidth that a flush takes at most."""

STOP = 0.3
"""Seconds that a save stops training beside its copy: all ranks meet, agree on who saves what, and hand the copy on. Assumed: the
sub-second stalls of ByteCheckpoint (NSDI 2025, from memory)."""

BESIDE = 0.03
"""How much longer a step takes while the host writes a checkpoint, as a share, beside what the NICs lose: memory bandwidth and
threads of the host, PCIe.

Assumed, of the order of what PCcheck (ASPLOS 2025, abstract) loses with a checkpoint in every ten steps: 3 % of throughput, stops
included, on machines with one GPU each and up to 7B parameters, where a write is nearly always under way. It was not measured on a
large job. ByteRobust (SOSP 2025) states less than 0.9 % with a checkpoint in every step, to memory only. CheckFreq's 3.5 % (FAST
2021) is the bound that it is told to keep, and no measurement."""


def checkpoint_cost(job: Job, policy: CheckpointPolicy, exposed: float = 0.0) -> CheckpointCost:
    """Seconds of a checkpoint of `job`. `exposed`: share of a step that waits for communication between nodes.

    The first stage takes `STOP` and copies every GPU's part over its host link, or takes `block`. A flush runs at the storage's or
    the NICs' rate, the lower, and makes a step longer by `BESIDE`. Where the node's files were measured, no node has more; if they
    are its own, NICs and a storage for all play no part. On training's NICs it takes a share b of their bandwidth, so
    that waiting for them takes 1 / (1 - b) as long. The next save waits until the flush has ended. PlanError for a checkpoint
    that the storage has no room for.
    """
    state = state_bytes_of(job)
    size = policy.size if policy.size is not None else state.total
    check_room(policy, size)
    node, nodes = job.cluster.node, nodes_of(job)
    files = node.files
    nic = nodes * node.nic.count * node.nic.bandwidth if node.nic is not None else None
    between = nic if files is None or files.shared else None
    write = storage_rate(job, policy.write, None if files is None else files.write, between)
    writes = size / write + (0.0 if files is None else files.latency)
    if policy.mode == "blocking":
        save, flush, drag = writes, 0.0, 0.0
    else:
        stage = legs(job.cluster, "host", out=True)[0].rate if files is None or files.stage is None else files.stage
        save, flush = STOP + size / job.cluster.gpus / stage, writes
        taken = min(MOST_TRAFFIC, write / between) if between is not None and policy.flush_over == "training" else 0.0
        drag = BESIDE + exposed * taken / (1.0 - taken) if policy.slowdown is None else policy.slowdown
    save = save if policy.block is None else policy.block
    load = policy.load_time if policy.load_time is not None else _load(job, policy, state, size, nic)
    return CheckpointCost(size, save, flush, drag, load)


def storage_rate(job: Job, stated: float, measured: float | None, nic: float | None) -> float:
    """B/s of all nodes to or from their files. `stated`: of the storage, for all together; `measured`: of one node; `nic`: of all
    NICs, where they lie between."""
    files, own = job.cluster.node.files, None if measured is None else nodes_of(job) * measured
    if own is not None and files is not None and not files.shared:
        return own
    return min(rate for rate in (stated, own, nic) if rate is not None)


def _load(job: Job, policy: CheckpointPolicy, state: StateBytes, size: float, nic: float | None) -> float:
    """One reader of each part, then a pipelined broadcast of what all data-parallel ranks hold; or every rank reads what it
    holds."""
    files = job.cluster.node.files
    between = nic if files is None or files.shared else None
    read = storage_rate(job, policy.read, None if files is None else files.read, between)
    copies = job.dp * job.plan.cp
    shared = size * state.copied / state.total
    if policy.load == "all":
        return (size + shared * (copies - 1)) / read
    return size / read + (shared * copies / nic if nic is not None and copies > 1 else 0.0)


def nodes_of(job: Job) -> int:
    """Nodes that the job runs on."""
    return max(1, job.cluster.gpus // job.cluster.gpus_of_node)


def interval_of(policy: CheckpointPolicy, cost: CheckpointCost, step: float) -> float | None:
    """Seconds of training between checkpoints, None for the best. SpecError for an interval that ends before its checkpoint is
    written."""
    if policy.steps is None and policy.every == "best":
        return None
    steps = policy.steps if policy.steps is not None else max(1, round(float(policy.every) / step))
    interval, least = steps * step, max(cost.save, cost.flush)
    if interval < least:
        field, got = ("steps", steps) if policy.steps is not None else ("every", policy.every)
        needed = -(-least // step)
        raise SpecError(
            f"reliability.checkpoint.{field}",
            got,
            f"an interval that is longer than the {least:.4g} s in which a checkpoint is written",
            f"Write reliability.checkpoint.steps={needed:.0f} or more, every=best, or a faster reliability.checkpoint.write.",
        )
    return interval


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
