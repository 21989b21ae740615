"""When a framework can do a change: it has a word for it, and what it demands beside it holds.

Megatron-Core: `megatron/core/transformer/transformer_config.py` refuses shared-expert overlap with another dispatcher than
alltoall, overlap of expert-parallel calls with full recompute, with shared-expert overlap or with a pipeline without virtual
stages;
`megatron/training/arguments.py` turns overlap of pipeline transfers off without virtual stages.
"""

from __future__ import annotations

from windtunnel.search.change import Change
from windtunnel.search.levers.flags import framework_table
from windtunnel.spec import Job

NOT_OF_A_FRAMEWORK = ("cluster.", "unequal", "plan.dp", "runtime.data.", "runtime.host", "plan.offload.")
"""Fields that no framework decides, or that its table need not name: machine, ranks, the reader of data, costs of the host."""

OFF = (None, False, "none", "auto", ())
"""Values that leave a feature out, for which no word is needed."""

FOLLOWERS = ("plan.stages", "plan.recompute_layers", "plan.cp_sizes", "plan.shard_group", "plan.vpp")
"""Fields that follow others of a change."""

MEGATRON = ("megatron-core", "megatron-lm", "nemo")


def can_do(job: Job, change: Change) -> bool:
    """Whether the framework of `job`, which has the change, can do it."""
    table = framework_table(job)
    if table is None:
        return True
    for path, value in change.fields:
        if path.startswith(NOT_OF_A_FRAMEWORK) or value in OFF or path in FOLLOWERS and len(change.fields) > 1:
            continue
        writer = table.get(path)
        if writer is None and any(path.startswith("runtime.") and other == "runtime.launch" for other, _ in change.fields):
            continue  # what comes with a way to launch
        if writer is None or writer(job, value) is None:
            return False
    return job.runtime.framework not in MEGATRON or _megatron_can(job)


def _megatron_can(job: Job) -> bool:
    plan, runtime = job.plan, job.runtime
    shared = bool(getattr(job.model, "shared_ffn", 0)) and runtime.moe_shared_overlap
    if shared and runtime.moe_dispatch != "alltoall":
        return False
    if runtime.moe_a2a_overlap and (plan.recompute == "full" or shared or plan.pp > 1 and plan.vpp == 1):
        return False
    return plan.vpp == 1 or plan.micro_batch * job.dp * plan.pp <= plan.global_batch
