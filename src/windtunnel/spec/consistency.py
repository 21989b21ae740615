"""Whether the fields of a job agree with each other: `check` asks the requirements of every feature in turn."""

from __future__ import annotations

import math

from windtunnel.base.errors import PlanError
from windtunnel.spec.common import divisors
from windtunnel.spec.graph_model import GraphModel, check_graph
from windtunnel.spec.job import Job
from windtunnel.spec.model import Model
from windtunnel.spec.offload import check_offload
from windtunnel.spec.plan import Plan
from windtunnel.spec.reliability import check_reliability
from windtunnel.spec.requirements.adapters import check_adapters, check_vision
from windtunnel.spec.requirements.context import check_context, chunks_of
from windtunnel.spec.requirements.experts import check_dispatch, check_experts, check_modules, check_offloaded
from windtunnel.spec.requirements.mixers import check_mixers
from windtunnel.spec.requirements.precision import check_precision
from windtunnel.spec.requirements.sharding import check_loss, check_optimizer, check_sharding
from windtunnel.spec.requirements.unequal_ranks import check_unequal
from windtunnel.spec.runtime import Runtime
from windtunnel.spec.shapes import check_batches, check_virtual


def check(job: Job) -> Job:
    """Return `job`, or raise `PlanError` at the first contradiction between its fields."""
    if isinstance(job.model, GraphModel):
        check_graph(job.model, job.plan, job.runtime)
    else:
        _check_widths(job)
        check_offloaded(job.model, job.plan)
    _check_ranks(job)
    if not isinstance(job.model, GraphModel):
        check_mixers(job.model, job.plan)
        check_adapters(job.model, job.plan, job.runtime.precision)
        check_vision(job.model, job.plan)
        check_loss(job.runtime, job.plan)
    check_context(job.model, job.plan, job.runtime, job.cp_kind)
    check_experts(job.model, job.plan, job.dp)
    check_optimizer(job.plan, job.runtime, not isinstance(job.model, GraphModel), job.micro_batches)
    check_modules(job.model, job.plan)
    check_sharding(job.model, job.plan, job.runtime, job.dp, job.shard_ranks, job.near_ranks, job.expert_dp)
    check_dispatch(job.model, job.plan, job.runtime)
    _check_stages(job)
    _check_batch(job)
    _check_machine(job)
    check_offload(
        job.plan.offload,
        job.cluster,
        job.plan.schedule_name,
        job.plan.shards_parameters,
        job.runtime.optimizer,
        max(max(stage) for stage in job.layers_per_stage),
        job.plan.recompute,
    )
    if job.unequal is not None:
        check_unequal(job, job.unequal)
    if job.reliability is not None:
        check_reliability(job.reliability, max(1, job.cluster.gpus // job.cluster.gpus_of_node))
    return job


def _check_degrees(plan: Plan, gpus: int) -> None:
    """PlanError for the one degree without which the others divide the GPUs, with those that would do."""
    for name in ("tp", "cp", "pp"):
        degree = getattr(plan, name)
        rest, left = divmod(gpus, math.prod(getattr(plan, other) for other in ("tp", "cp", "pp") if other != name))
        if not left and degree > 1 and math.gcd(degree, gpus) == 1:
            others = ", ".join(map(str, divisors(rest)[:12]))
            raise PlanError(f"plan.{name}", degree, f"a divisor of the {rest} GPUs that it is to divide", f"Divisors: {others}.")


def _check_ranks(job: Job) -> None:
    plan, gpus = job.plan, job.cluster.gpus
    split = plan.tp * plan.cp * plan.pp
    if plan.dp is not None and split * plan.dp != gpus:
        raise PlanError(
            "plan.dp",
            plan.dp,
            f"tp*cp*pp*dp = cluster.gpus ({split} * dp = {gpus})",
            f"Write dp = {gpus // split}." if gpus % split == 0 else f"Or cluster.gpus = {split * plan.dp}.",
        )
    if gpus % split:
        _check_degrees(plan, gpus)
        raise PlanError("cluster.gpus", gpus, f"a multiple of tp*cp*pp = {split}", f"Try {math.ceil(gpus / split) * split}.")
    if plan.shard_group is not None and (job.dp * plan.cp) % plan.shard_group:
        raise PlanError("plan.shard_group", plan.shard_group, f"a divisor of dp*cp = {job.dp * plan.cp}")
    if set(plan.placement) != {"tp", "cp", "ep", "dp", "pp"} or len(plan.placement) != 5:
        raise PlanError("plan.placement", list(plan.placement), "each of tp, cp, ep, dp, pp once")


def _key_heads(model: Model) -> dict[str, int]:
    """Field -> key/value heads, also of layers without the window."""
    own = {} if model.global_kv_heads is None else {"model.global_kv_heads": model.global_kv_heads}
    return {"model.kv_heads": model.groups, **own}


def _check_widths(job: Job) -> None:
    model, plan = job.model, job.plan
    if model.head_dim is None and model.hidden % model.heads:
        raise PlanError("model.heads", model.heads, f"a divisor of model.hidden = {model.hidden}, or a stated head_dim")
    far = {} if model.global_heads is None else {"global_heads": model.global_heads}
    for field, groups in _key_heads(model).items():
        if model.heads % groups:
            raise PlanError(field, groups, f"a divisor of model.heads = {model.heads}", _divisors(model.heads))
    for number in far.values():
        if number % (groups := model.global_kv_heads or model.groups):
            raise PlanError("model.global_heads", number, f"a multiple of their key/value heads = {groups}")
    inner = {"ffn": model.ffn} if any(kind.feed == "dense" for kind in model.kinds) else {}
    shared = {"shared_ffn": model.shared_ffn} if model.experts and model.shared_ffn else {}
    for what, number in {"heads": model.heads, **far, **inner, **shared}.items():
        if number % plan.tp:
            raise PlanError("plan.tp", plan.tp, f"a divisor of model.{what} = {number}", _divisors(number))
    for field, groups in _key_heads(model).items() if not model.latent else ():
        if max(groups, plan.tp) % min(groups, plan.tp):
            raise PlanError("plan.tp", plan.tp, f"a divisor or multiple of {field} = {groups}")
    chunks = chunks_of(plan)
    step = math.lcm(chunks, plan.cp * plan.tp if plan.sequence_parallel else 1)
    if plan.seq % step:
        raise PlanError(
            "plan.seq",
            plan.seq,
            f"a multiple of {step} (2*cp where cp > 1, cp if contiguous; cp*tp with sequence_parallel)",
            f"Try {math.ceil(plan.seq / step) * step}.",
        )
    if model.position == "learned" and plan.seq > model.max_seq:
        raise PlanError("plan.seq", plan.seq, f"at most model.max_seq = {model.max_seq}, the number of learned positions")


def _check_stages(job: Job) -> None:
    model, plan = job.model, job.plan
    stages = plan.pp * plan.vpp
    check_virtual(plan.schedule_name, plan.pp, plan.vpp, plan.schedule != "auto")
    if plan.stages is not None:
        if len(plan.stages) != stages or sum(plan.stages) != model.layers:
            raise PlanError(
                "plan.stages",
                list(plan.stages),
                f"{stages} numbers (pp*vpp) that add up to model.layers = {model.layers}",
                f"These are {len(plan.stages)}, and their sum is {sum(plan.stages)}.",
            )
    elif stages > model.layers:
        raise PlanError("plan.pp", plan.pp, f"pp*vpp of at most model.layers = {model.layers}; here it is {stages}")
    elif model.layers % stages:
        raise PlanError(
            "plan.pp",
            plan.pp,
            f"pp*vpp = {stages} that divides model.layers = {model.layers}",
            f"Or give plan.stages, for example {_layout(model.layers, stages)}.",
        )
    largest = max(max(stage) for stage in job.layers_per_stage)
    if plan.recompute_layers is not None and plan.recompute_layers > largest:
        raise PlanError("plan.recompute_layers", plan.recompute_layers, f"at most the {largest} layers of a virtual stage")


def _check_batch(job: Job) -> None:
    plan = job.plan
    batch = plan.micro_batch * job.dp
    if plan.global_batch % batch:
        raise PlanError(
            "plan.global_batch",
            plan.global_batch,
            f"a multiple of micro_batch*dp = {batch}",
            f"Try {math.ceil(plan.global_batch / batch) * batch}.",
        )
    check_batches(plan.schedule_name, plan.pp, job.micro_batches, batch)
    tokens, runtime = plan.micro_batch * plan.seq // plan.cp, job.runtime
    if runtime.overlap_tp and plan.sequence_parallel and plan.tp > 1 and tokens % runtime.tp_chunks:
        raise PlanError("runtime.tp_chunks", runtime.tp_chunks, f"a divisor of micro_batch*seq/cp = {tokens}", _divisors(tokens))
    if not runtime.overlap_tp and runtime.tp_chunks != Runtime.model_fields["tp_chunks"].default:
        raise PlanError("runtime.tp_chunks", runtime.tp_chunks, "runtime.overlap_tp = true: nothing is cut in chunks without it")


def _check_machine(job: Job) -> None:
    node, gpus = job.cluster.node, job.cluster.gpus
    if max(node.scale_up.size, node.gpus) % min(node.scale_up.size, node.gpus):
        raise PlanError("cluster.node.scale_up.size", node.scale_up.size, f"a divisor or multiple of the node's {node.gpus} GPUs")
    if gpus > node.gpus and gpus % node.gpus:
        raise PlanError("cluster.gpus", gpus, f"whole nodes of {node.gpus} GPUs", f"Try {math.ceil(gpus / node.gpus) * node.gpus}.")
    if gpus > node.domain and not job.cluster.fabric.is_grid:
        if node.nic is None:
            raise PlanError("cluster.gpus", gpus, f"at most {node.domain}: node {node.id!r} has no NIC")
        if job.cluster.fabric.kind == "none":
            raise PlanError("cluster.fabric", job.cluster.fabric.id, f"a network: {gpus} GPUs need more than one scale-up domain")
    if job.runtime.launch_blocking and job.runtime.launch == "cuda_graph":
        raise PlanError(
            "runtime.launch_blocking",
            True,
            "false with runtime.launch = cuda_graph: kernels of a graph are not launched one by one",
            "Write runtime.launch = eager.",
        )
    check_precision(job.runtime, job.cluster.gpu, job.model.layers, job.plan)


def _divisors(number: int) -> str:
    listed = [d for d in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 64) if number % d == 0]
    return "Divisors: " + ", ".join(map(str, listed)) + "."


def _layout(layers: int, stages: int) -> list[int | str]:
    base, extra = divmod(layers, stages)
    return [base + (1 if s < extra else 0) for s in range(stages)] if stages <= 64 else [base + 1, "…", base]
