"""The default space: what a framework can do with a model on a cluster, by framework.

Degrees are powers of two, and the pipeline's also divisors of the layers and of the GPUs. Choices that a rule settles are not
opened: sequence parallelism goes with tensor parallelism, stages are as even as they can be. `--set plan.tp=4,8` narrows a
field; `--set runtime.overlap_tp=true,false` opens another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windtunnel.search.change import value_of
from windtunnel.search.levers.pricing import MEGATRON
from windtunnel.search.levers.registry import recompute_choices
from windtunnel.search.space import BY_SPEED, EVEN, WITH_TP, Values, powers_of_two, stages_of
from windtunnel.spec import Job, Model
from windtunnel.spec.common import divisors

MOST_TP, MOST_PP, MOST_EP, MOST_MICRO, MOST_CP = 8, 64, 64, 8, 16

LEAST_SEQUENCE = 4096
"""Least tokens of a sequence on one of the ranks that share it."""

PLAIN = ("fsdp", "deepspeed", "maxtext")
"""Frameworks whose plans have no virtual stages."""

WITHOUT_MODEL_PARALLELISM = ("fsdp", "deepspeed")
"""Frameworks whose users split state, not layers: no tensor or pipeline parallelism."""

SHARDINGS: dict[str, Values] = {
    "torchtitan": ("fsdp", "hsdp"),
    "fsdp": ("fsdp", "hsdp", "zero2"),
    "maxtext": ("fsdp",),
    "deepspeed": ("zero1", "zero2", "zero3"),
    "megatron-deepspeed": ("none", "zero1"),
}
"""Ways to shard state by framework; Megatron's for others."""

RECOMPUTE: dict[str, Values] = {"torchtitan": ("none", "ops", "full"), "fsdp": ("none", "full"), "deepspeed": ("none", "full")}


def default_fields(job: Job) -> dict[str, Values]:
    """Open fields of the plan with their values. Fields are left out where there is nothing to choose."""
    model, plan, cluster = job.model, job.plan, job.cluster
    framework = job.runtime.framework
    fields: dict[str, Iterable[Any]] = {}
    if isinstance(model, Model):
        alone = framework in WITHOUT_MODEL_PARALLELISM
        fields["plan.tp"] = [1] if alone else [p for p in powers_of_two(min(cluster.domain, MOST_TP)) if model.heads % p == 0]
        fields["plan.cp"] = [p for p in powers_of_two(min(MOST_CP, max(1, plan.seq // LEAST_SEQUENCE)))]
        fields["plan.sequence_parallel"] = [WITH_TP]
        if model.experts and framework != "fsdp":
            fields["plan.ep"] = [p for p in powers_of_two(min(MOST_EP, cluster.gpus)) if model.experts % p == 0]
        fields["plan.recompute"] = RECOMPUTE.get(framework, ("none", "selective", "full"))
        if framework in MEGATRON:
            fields["plan.recompute_modules"] = recompute_choices(job.model)
        fields["plan.sharding"] = SHARDINGS.get(framework, ("none", "zero1"))
        fields["plan.micro_batch"] = [p for p in powers_of_two(min(MOST_MICRO, plan.global_batch)) if plan.global_batch % p == 0]
    if framework not in WITHOUT_MODEL_PARALLELISM:
        fields["plan.pp"] = _stage_counts(job)
        differ = job.unequal is not None and (job.unequal.slow or job.unequal.mixed)
        fields["plan.stages"] = [EVEN, BY_SPEED] if differ else [EVEN]
        if framework not in PLAIN:
            fields["plan.vpp"] = _virtual_counts(job)
            fields["plan.schedule"] = ["auto"]
    return {path: _with_own(job, path, tuple(values)) for path, values in fields.items()}


def _with_own(job: Job, path: str, values: Values) -> Values:
    """The values and the job's own one, so that its plan is in the space."""
    own = value_of(job, path)
    if path == "plan.sequence_parallel":
        return values if own == (job.plan.tp > 1) else (*values, own)
    if path == "plan.stages":
        return values if own is None or own == stages_of(EVEN, job.model.layers, job.plan.pp * job.plan.vpp) else (*values, own)
    return values if own in values else tuple(sorted((*values, own), key=lambda value: (isinstance(value, str), value)))


def _stage_counts(job: Job) -> list[int]:
    most = min(job.model.layers, MOST_PP, job.cluster.gpus)
    counts = {*powers_of_two(most), *(d for d in (*divisors(job.model.layers), *divisors(job.cluster.gpus)) if d <= most)}
    return sorted(count for count in counts if job.cluster.gpus % count == 0)


def _virtual_counts(job: Job) -> list[int]:
    """Divisors of the layers; with an odd number of them, also of the next numbers, since stages may be uneven."""
    layers = job.model.layers
    return sorted({1, 2, 4, *(d for d in divisors(layers) if d <= layers // 2)} if layers > 2 else {1})
