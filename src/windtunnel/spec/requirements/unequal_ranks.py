"""Checks of `unequal` against the job."""

from __future__ import annotations

from windtunnel.base.errors import PlanError
from windtunnel.spec.job import Job
from windtunnel.spec.shapes import check_batches
from windtunnel.spec.unequal import Mixed, Unequal, Where


def check_unequal(job: Job, unequal: Unequal) -> None:
    """Raise PlanError at the first entry that names something the job does not have, or that has no effect."""
    if not any(getattr(unequal, name) for name in Unequal.model_fields if name not in ("draws", "unfold")):
        raise PlanError(
            "unequal",
            "nothing that differs",
            "one of slow, mixed, links, pauses, batches, jitter, documents, experts, spread",
            "Or leave it out: --set unequal=none.",
        )
    for field in ("slow", "mixed", "links", "pauses", "batches"):
        for at, entry in enumerate(getattr(unequal, field)):
            _check_where(job, entry, f"unequal.{field}.{at}", everywhere=field == "pauses")
    for at, slow in enumerate(unequal.slow):
        if slow.factor == 1.0 and slow.clock == 1.0:
            raise PlanError(f"unequal.slow[{at}]", "factor 1 and clock 1", "a factor above 1, or a clock below 1")
    for at, mixed in enumerate(unequal.mixed):
        _check_mixed(job, mixed, f"unequal.mixed[{at}]")
    for at, link in enumerate(unequal.links):
        if job.cluster.gpus <= job.cluster.domain:
            raise PlanError(f"unequal.links[{at}]", link.rate, "a job of more than one scale-up domain: this one uses no NIC")
        if link.rate == 1.0:
            raise PlanError(f"unequal.links[{at}].rate", link.rate, "a rate below 1")
    _check_documents(job, unequal)
    _check_experts(job, unequal)
    _check_batches(job, unequal)


def _check_where(job: Job, where: Where, path: str, everywhere: bool) -> None:
    nodes = -(-job.cluster.gpus // job.cluster.node.gpus)
    limits = {"ranks": job.cluster.gpus, "nodes": nodes, "replicas": job.dp, "stages": job.plan.pp}
    if not everywhere and where.share is None and not any(getattr(where, name) for name in limits):
        raise PlanError(path, "no place", "one of ranks, nodes, replicas, stages, share", "Say which ranks differ.")
    for name, limit in limits.items():
        wrong = next((n for n in getattr(where, name) if n >= limit), None)
        if wrong is not None:
            raise PlanError(f"{path}.{name}", wrong, f"0 to {limit - 1}: the job has {limit} {name}")


def _check_mixed(job: Job, mixed: Mixed, path: str) -> None:
    if (mixed.gpu is None) == (mixed.node is None):
        raise PlanError(path, "both gpu and node" if mixed.gpu else "neither gpu nor node", "one of gpu, node")
    node = job.cluster.node
    gpu = mixed.gpu or (mixed.node or node).gpu
    if job.runtime.precision not in gpu.peak:
        formats = ", ".join(sorted(gpu.peak))
        raise PlanError("runtime.precision", job.runtime.precision, f"{formats} on {gpu.id}, which {path} names")
    if mixed.node is None:
        return
    if (mixed.node.gpus, mixed.node.domain) != (node.gpus, node.domain):
        raise PlanError(
            f"{path}.node", mixed.node.id, f"a node of {node.gpus} GPUs in scale-up domains of {node.domain}, as {node.id} is"
        )
    if mixed.node.nic is None and job.cluster.gpus > node.domain:
        raise PlanError(f"{path}.node", mixed.node.id, "a node with a NIC")


def _check_documents(job: Job, unequal: Unequal) -> None:
    if unequal.documents is None:
        return
    if job.plan.cp > 1:
        raise PlanError(
            "unequal.documents",
            f"plan.cp = {job.plan.cp}",
            "plan.cp = 1: how documents are cut over context-parallel ranks is not modelled",
        )
    if job.runtime.attention != "flash":
        raise PlanError(
            "unequal.documents", job.runtime.attention, 'runtime.attention = "flash", which skips what lies between documents'
        )


def _check_experts(job: Job, unequal: Unequal) -> None:
    if unequal.experts is None:
        return
    if job.model.experts is None:
        raise PlanError("unequal.experts", job.model.name, "a model with experts")
    if job.plan.ep == 1:
        raise PlanError(
            "unequal.experts",
            "plan.ep = 1",
            "experts on several ranks (plan.ep of 2 or more)",
            "One rank that holds all experts has the same tokens whatever the router says.",
        )
    if job.runtime.moe_imbalance != 1.0:
        raise PlanError(
            "unequal.experts",
            f"runtime.moe_imbalance = {job.runtime.moe_imbalance}",
            "runtime.moe_imbalance = 1: draws and a stated load would count twice",
        )


def _check_batches(job: Job, unequal: Unequal) -> None:
    if not unequal.batches:
        return
    counts = micro_batches(job, unequal)
    in_step = job.plan.global_batch // job.plan.micro_batch
    if sum(counts) != in_step:
        raise PlanError(
            "unequal.batches",
            f"{sum(counts)} micro batches in all",
            f"as many as a step has, global_batch / micro_batch = {in_step}",
            f"Replicas that are not named run {job.micro_batches}.",
        )
    for at, entry in enumerate(unequal.batches):
        if entry.ranks or entry.nodes or entry.stages or entry.share is not None:
            raise PlanError(f"unequal.batches[{at}]", "ranks, nodes, stages or share", "replicas only")
        try:
            check_batches(job.plan.schedule_name, job.plan.pp, entry.micro_batches, job.plan.micro_batch * job.dp)
        except PlanError as error:
            raise PlanError(f"unequal.batches[{at}].micro_batches", entry.micro_batches, error.allowed) from None
    if job.plan.shards_parameters or job.plan.sharding == "zero2" and job.runtime.reduce_every_micro_batch:
        raise PlanError(
            "unequal.batches",
            job.plan.sharding,
            "gradients that are combined once a step (none, zero1): replicas that meet in every pass have to run as many",
        )
    if job.copies > 1 and any(count % 2 for count in counts):
        raise PlanError("unequal.batches", job.plan.schedule_name, "even numbers of micro batches")
    if job.plan.ep * job.plan.etp > job.plan.tp * job.plan.cp and len(set(counts)) > 1:
        raise PlanError(
            "unequal.batches",
            f"plan.ep = {job.plan.ep}",
            "expert groups inside a replica (ep*etp of at most tp*cp): "
            "replicas that exchange tokens have to run as many micro batches",
        )


def micro_batches(job: Job, unequal: Unequal) -> list[int]:
    """Micro batches of each replica; a later entry overrides an earlier one."""
    counts = [job.micro_batches] * job.dp
    for entry in unequal.batches:
        for replica in entry.replicas:
            counts[replica] = entry.micro_batches
    return counts
