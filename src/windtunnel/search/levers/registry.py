"""The one list of levers: changes that could shorten a step, each with the losses that it is for and the framework that can do it.

`predict`'s advice, `sensitivity` and `search` read this list. A lever is offered where the job's framework has a word for it
(`flags.py`) and its conditions (`conditions.py`) hold; frameworks without a table of words are offered all. What it gains is the
difference of two predictions (`pricing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from windtunnel.base.dataclasses import dataclass
from windtunnel.search.change import Change
from windtunnel.search.space import lighter_ends
from windtunnel.spec import Job, load_runtime, names
from windtunnel.spec.model import Model

TRAINING = ("plan.global_batch",)
"""Fields that change what is trained."""


@dataclass(frozen=True)
class ListedLever:
    """`parts`: keys of the breakdown that its changes may shorten; empty: kernels of any kind."""

    name: str
    parts: tuple[str, ...]
    changes: Callable[[Job], Iterator[Change]]


def _bubble(job: Job) -> Iterator[Change]:
    plan = job.plan
    for vpp in (2, 4):
        if plan.schedule_name in ("1f1b", "interleaved") and plan.pp > 1:
            yield Change.of(plan__vpp=plan.vpp * vpp, plan__schedule="auto", plan__stages=None)
    for schedule in ("zb-h1", "interleaved-zb"):
        if plan.schedule_name in ("1f1b", "interleaved"):
            yield Change.of(plan__schedule=schedule)
    if plan.pp > 1:
        yield Change.of(plan__pp=plan.pp // 2, plan__dp=None, plan__stages=None)
    if plan.micro_batch > 1:
        yield Change.of(plan__micro_batch=plan.micro_batch // 2)
    yield Change.of(plan__global_batch=2 * plan.global_batch)


def _tp(job: Job) -> Iterator[Change]:
    plan = job.plan
    if not job.runtime.overlap_tp and plan.sequence_parallel:
        yield Change.of(runtime__overlap_tp=True)
    if not job.runtime.overlap_tp_dgrad:
        yield Change.of(runtime__overlap_tp_dgrad=True)
    if plan.tp > 1:
        yield Change.of(plan__tp=plan.tp // 2, plan__dp=None)
        yield Change.of(plan__tp=plan.tp // 2, plan__pp=plan.pp * 2, plan__dp=None, plan__stages=None)


def _reduce(job: Job) -> Iterator[Change]:
    if not job.runtime.overlap_grad_reduce:
        yield Change.of(runtime__overlap_grad_reduce=True)
        if not job.runtime.overlap_param_gather:
            yield Change.of(runtime__overlap_grad_reduce=True, runtime__overlap_param_gather=True)
    yield Change.of(plan__global_batch=2 * job.plan.global_batch)


def _gather(job: Job) -> Iterator[Change]:
    if not job.runtime.overlap_param_gather:
        yield Change.of(runtime__overlap_param_gather=True)
    domain = job.cluster.domain
    if job.plan.sharding in ("fsdp", "zero3") and 1 < domain < job.dp:
        yield Change.of(plan__sharding="hsdp", plan__shard_group=domain)
    if job.plan.sharding in ("fsdp", "zero3", "hsdp") and job.runtime.reshard_after_forward:
        yield Change.of(runtime__reshard_after_forward=False)


def _pipeline(job: Job) -> Iterator[Change]:
    if not job.runtime.overlap_p2p:
        yield Change.of(runtime__overlap_p2p=True)
    if job.plan.vpp > 1:
        yield Change.of(plan__vpp=job.plan.vpp // 2, plan__stages=None)
    if job.plan.pp > 1:
        yield Change.of(plan__pp=job.plan.pp // 2, plan__dp=None, plan__stages=None)


def _context(job: Job) -> Iterator[Change]:
    if job.plan.cp > 1:
        yield Change.of(plan__cp=job.plan.cp // 2, plan__dp=None)
        for kind in ("p2p", "all_gather", "a2a"):
            if kind != job.cp_kind:
                yield Change.of(plan__cp_kind=kind, plan__cp_sizes=None)


def _experts(job: Job) -> Iterator[Change]:
    if not job.runtime.moe_a2a_overlap:
        yield Change.of(runtime__moe_a2a_overlap=True, runtime__moe_shared_overlap=False)
    for dispatch in ("deepep", "hybridep"):
        if job.runtime.moe_dispatch != dispatch:
            yield Change.of(runtime__moe_dispatch=dispatch, runtime__moe_shared_overlap=False)
    if getattr(job.model, "shared_ffn", 0) and not job.runtime.moe_shared_overlap:
        yield Change.of(runtime__moe_shared_overlap=True)
    if job.plan.ep > 1:
        yield Change.of(plan__ep=job.plan.ep // 2)


def recompute_choices(model: Model) -> list[tuple[str, ...]]:
    """Sets of modules that selective recompute may run again, from the cheapest on; Megatron-Core's names."""
    latent = ("mla_up_proj",) if getattr(model, "kv_lora_rank", None) else ()
    if model.experts:
        return [("core_attn",), ("layernorm", *latent, "moe_act"), ("layernorm", *latent, "moe")]
    return [("core_attn",), ("layernorm", *latent), ("layernorm", *latent, "mlp")]


def _launch(job: Job) -> Iterator[Change]:
    """Other ways to launch, with the host costs and fused kernels that come with them in the framework's entry."""
    runtime = job.runtime
    if runtime.framework not in names("frameworks"):
        return
    stated: dict[str, Any] = {"version": runtime.version, "precision": runtime.precision}
    now = load_runtime(runtime.framework, **stated, launch=runtime.launch)
    for launch in LAUNCHES:
        then = load_runtime(runtime.framework, **stated, launch=launch)
        fields = ((name, getattr(then, name)) for name in type(then).model_fields if getattr(then, name) != getattr(now, name))
        if launch != runtime.launch:
            yield Change(tuple((f"runtime.{name}", value) for name, value in fields if name not in ("source", "version")))


LAUNCHES: tuple[Literal["eager", "compile", "cuda_graph"], ...] = ("eager", "compile", "cuda_graph")


def _micro_batch(job: Job) -> Iterator[Change]:
    yield Change.of(plan__micro_batch=2 * job.plan.micro_batch)


FUSED = ("fused_norm", "fused_activation", "fused_rope", "fused_dropout_add", "fused_cross_entropy", "fused_wgrad")
FUSED_EXPERTS = ("moe_permute_fusion", "moe_fused_router", "moe_fused_mlp")


def _kernels(job: Job) -> Iterator[Change]:
    runtime = job.runtime
    for name in (*FUSED, *(FUSED_EXPERTS if getattr(job.model, "experts", None) else ())):
        if not getattr(runtime, name):
            yield Change(((f"runtime.{name}", True),))
    if runtime.attention != "flash":
        yield Change.of(runtime__attention="flash")
    if runtime.cross_entropy not in ("chunked", "linear"):
        yield Change.of(runtime__cross_entropy="linear")


def _recompute(job: Job) -> Iterator[Change]:
    for weaker in {"full": ("none", "selective"), "selective": ("none",), "ops": ("none",)}.get(job.plan.recompute, ()):
        yield Change.of(plan__recompute=weaker, plan__recompute_layers=None)
    for modules in recompute_choices(job.model) if job.plan.recompute != "none" else ():
        yield Change.of(plan__recompute="selective", plan__recompute_modules=modules, plan__recompute_layers=None)
    largest = max(max(stage) for stage in job.layers_per_stage)
    again = largest if job.plan.recompute_layers is None else job.plan.recompute_layers
    if job.plan.recompute == "full":
        for quarter in (1, 2, 3):
            if (layers := largest * quarter // 4) < again:
                yield Change.of(plan__recompute_layers=layers)


def _optimizer(job: Job) -> Iterator[Change]:
    if job.plan.sharding == "none" and job.dp * job.plan.cp > 1:
        yield Change.of(plan__sharding="zero1")
    if not job.runtime.fused_optimizer:
        yield Change.of(runtime__fused_optimizer=True)


def _stages(job: Job) -> Iterator[Change]:
    return (Change.of(plan__stages=stages) for stages in lighter_ends(job))


def _slowest(job: Job) -> Iterator[Change]:
    yield Change.of(cluster__slow_nodes=0.0)


def _data(job: Job) -> Iterator[Change]:
    if job.runtime.data.overlap != "step":
        yield Change.of(runtime__data__overlap="step")
    if job.runtime.data.reader != "node":
        yield Change.of(runtime__data__reader="node")


def _offload(job: Job) -> Iterator[Change]:
    if job.plan.offload.optimizer != "none":
        yield Change.of(plan__offload__optimizer="none", plan__offload__optimizer_fraction=1.0)
    if job.plan.offload.activations:
        yield Change.of(plan__offload__activations=job.plan.offload.activations // 2)


LEVERS: tuple[ListedLever, ...] = (
    ListedLever("bubble", ("bubble",), _bubble),
    ListedLever("tp", ("exposed_tensor_parallel",), _tp),
    ListedLever("reduce", ("exposed_gradient_reduce",), _reduce),
    ListedLever("gather", ("exposed_parameter_gather",), _gather),
    ListedLever("pipeline", ("exposed_pipeline_transfer",), _pipeline),
    ListedLever("context", ("exposed_context_parallel",), _context),
    ListedLever("experts", ("exposed_expert_parallel",), _experts),
    ListedLever("launch", ("host", "memory_bound"), _launch),
    ListedLever("micro_batch", ("host", "matmul"), _micro_batch),
    ListedLever("recompute", ("recompute",), _recompute),
    ListedLever("optimizer", ("optimizer",), _optimizer),
    ListedLever("stages", ("other_stages",), _stages),
    ListedLever("slowest", ("slowest_gpu",), _slowest),
    ListedLever("data", ("exposed_data",), _data),
    ListedLever("offload", ("exposed_offload", "exposed_cpu_update"), _offload),
    ListedLever("kernels", (), _kernels),
)
"""All levers. Where two changes gain the same, the one that stands first wins."""
