"""Seconds until a job's communication groups stand: operations on the store, counted, over what the store serves in a second.

A rank registers at a group's barrier and then asks until all are there, two operations; each member of a group of GPUs asks once
for the communicator's id. With `sync = "all_ranks"` every rank does so after every group of the job, n x groups operations where
the number of groups grows with n; with `sync = "members"` only for its own groups. Not counted: processes, CUDA contexts, NCCL's
own bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.spec.job import Job

RATE = {"tcp": 4.63e3, "redis": 13.4e3, "tcp_libuv": 24e3}
"""Operations a second that a store serves.

`tcp` and `redis`: what makes MegaScale's 1,047 and 361 s at 2,048 GPUs (NSDI 2024, section 3.5) of the operations counted here
for its 175B's plan; measured elsewhere are 1.5 to 6 thousand and 2.5 to 8.5 thousand of single clients. `tcp_libuv`: 19 to 29
thousand, measured with gloo on one machine."""

BARRIER, ID = 2, 1
"""Operations of a rank at a barrier, and of a member for a communicator's id."""


@dataclass(frozen=True)
class StartupTime:
    """`groups` of a job, `memberships` of all ranks in them, operations on the store, seconds."""

    groups: int
    memberships: int
    operations: float
    seconds: float


def startup(job: Job) -> StartupTime:
    """Groups that Megatron-LM makes of such a plan (megatron/core/parallel_state.py, 2023), and what they cost."""
    plan, ranks, how = job.plan, job.cluster.gpus, job.runtime.startup
    made = _groups(job)
    groups, memberships = sum(count for count, _ in made), sum(count * size for count, size in made)
    met = memberships if how.sync == "members" else groups * ranks
    operations = float(BARRIER * met + ID * memberships) if ranks > 1 and plan.tp * plan.cp * plan.pp * job.dp > 1 else 0.0
    return StartupTime(groups, memberships, operations, operations / RATE[how.store])


def _groups(job: Job) -> list[tuple[int, int]]:
    """(how many, ranks of each): data parallel twice, for GPUs and for hosts; model, tensor, pipeline; its ends twice, for tied
    embeddings and for positions; context and experts where the plan has them."""
    plan, ranks = job.plan, job.cluster.gpus
    sizes = [job.dp * plan.cp, job.dp * plan.cp, plan.tp * plan.pp, plan.tp, plan.pp]
    made = [(ranks // size, size) for size in sizes]
    made += [(ranks // plan.pp, min(2, plan.pp)), (ranks // plan.pp, 1)]
    if plan.cp > 1:
        made.append((ranks // plan.cp, plan.cp))
    if plan.ep * plan.etp > 1:
        made += [(ranks // size, size) for size in (plan.ep, plan.etp, job.expert_dp)]
    return made
