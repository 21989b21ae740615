"""Seconds until a job's communication groups are set up: operations on the store over the store's operations per second.

At a group's barrier a rank registers and then polls until all are present: two operations. Each member of a group of GPUs fetches
the communicator's id once. With `sync = "all_ranks"` every rank does so after every group of the job: n x groups operations, and
the number of groups grows with n. With `sync = "members"` a rank does so only for its own groups.

Not counted: start of processes, CUDA contexts, NCCL's bootstrap, and the connections of gloo's groups, each rank with each. Those
are what `windtunnel fleet startup` counts, by a law of its own that was measured on one machine. The fleet imports nothing of the
simulator and knows no framework's groups: the two answer different questions and share no number.
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.spec.job import Job

RATE = {"tcp": 4.63e3, "redis": 13.4e3, "tcp_libuv": 24e3}
"""Operations per second of a store.

`tcp` and `redis`: fitted so that the operations of MegaScale's 175B plan take the published 1,047 and 361 s at 2,048 GPUs (NSDI
2024, section 3.5). Measured elsewhere with single clients: 1.5 to 6 thousand and 2.5 to 8.5 thousand. `tcp_libuv`: 19 to 29
thousand, measured with gloo on one machine."""

BARRIER, ID = 2, 1
"""Operations of a rank at a barrier, and of a member for a communicator's id."""


@dataclass(frozen=True)
class StartupTime:
    """`groups` of a job, `memberships` of all ranks in them, operations on the store, and seconds."""

    groups: int
    memberships: int
    operations: float
    seconds: float


def startup(job: Job) -> StartupTime:
    """Groups that Megatron-LM creates for the plan (megatron/core/parallel_state.py, 2023), and their cost."""
    plan, ranks, settings = job.plan, job.cluster.gpus, job.runtime.startup
    group_sizes = _groups(job)
    groups, memberships = sum(count for count, _ in group_sizes), sum(count * size for count, size in group_sizes)
    met = memberships if settings.sync == "members" else groups * ranks
    operations = float(BARRIER * met + ID * memberships) if ranks > 1 and plan.tp * plan.cp * plan.pp * job.dp > 1 else 0.0
    return StartupTime(groups, memberships, operations, operations / RATE[settings.store])


def _groups(job: Job) -> list[tuple[int, int]]:
    """(number of groups, ranks of each): data parallel twice, for GPUs and for hosts; model, tensor, pipeline; first and last stage
    twice, for tied embeddings and for positions; context and expert groups if the plan has them."""
    plan, ranks = job.plan, job.cluster.gpus
    sizes = [job.dp * plan.cp, job.dp * plan.cp, plan.tp * plan.pp, plan.tp, plan.pp]
    group_sizes = [(ranks // size, size) for size in sizes]
    group_sizes += [(ranks // plan.pp, min(2, plan.pp)), (ranks // plan.pp, 1)]
    if plan.cp > 1:
        group_sizes.append((ranks // plan.cp, plan.cp))
    if plan.ep * plan.etp > 1:
        group_sizes += [(ranks // size, size) for size in (plan.ep, plan.etp, job.expert_dp)]
    return group_sizes
