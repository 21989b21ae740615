"""Seconds of a job's checkpoint."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.goodput.conditions import CheckpointCost
from windtunnel.memory.state import StateBytes, state_bytes_of
from windtunnel.memory.tiers import legs
from windtunnel.spec.job import Job
from windtunnel.spec.reliability import CheckpointPolicy, check_room

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
    the NICs' rate, the lower, and makes a step longer by `BESIDE`. On training's NICs it takes a share b of their bandwidth, so
    that waiting for them takes 1 / (1 - b) as long. The next save waits until the flush has ended. PlanError for a checkpoint
    that the storage has no room for.
    """
    state = state_bytes_of(job)
    size = policy.size if policy.size is not None else state.total
    check_room(policy, size)
    node, nodes = job.cluster.node, nodes_of(job)
    nic = nodes * node.nic.count * node.nic.bandwidth if node.nic is not None else None
    write = policy.write if nic is None else min(policy.write, nic)
    writes = size / write
    if policy.mode == "blocking":
        save, flush, drag = writes, 0.0, 0.0
    else:
        save, flush = STOP + size / job.cluster.gpus / legs(job.cluster, "host", out=True)[0].rate, writes
        taken = min(MOST_TRAFFIC, write / nic) if nic is not None and policy.flush_over == "training" else 0.0
        drag = BESIDE + exposed * taken / (1.0 - taken) if policy.slowdown is None else policy.slowdown
    save = save if policy.block is None else policy.block
    load = policy.load_time if policy.load_time is not None else _load(job, policy, state, size, nic)
    return CheckpointCost(size, save, flush, drag, load)


def _load(job: Job, policy: CheckpointPolicy, state: StateBytes, size: float, nic: float | None) -> float:
    """One reader of each part, then a pipelined broadcast of what all data-parallel ranks hold; or every rank reads what it
    holds."""
    read = policy.read if nic is None else min(policy.read, nic)
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
