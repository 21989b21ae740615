"""Job = model x plan x runtime x cluster: all inputs of a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, Discriminator, Tag

from windtunnel.base.errors import PlanError
from windtunnel.base.units import parse_count
from windtunnel.spec.calibration import Calibration
from windtunnel.spec.common import Name, NonNegativeInt, Noun, PositiveFloat
from windtunnel.spec.graph_model import GraphModel, check_graph
from windtunnel.spec.machine.cluster import Cluster
from windtunnel.spec.model import Model
from windtunnel.spec.offload import check_offload
from windtunnel.spec.plan import CpKind, Plan
from windtunnel.spec.reliability import Reliability, check_reliability
from windtunnel.spec.requirements.adapters import check_adapters
from windtunnel.spec.requirements.context import check_context, chunks_of
from windtunnel.spec.requirements.experts import check_dispatch, check_experts, check_modules, check_offloaded
from windtunnel.spec.requirements.images import check_vision
from windtunnel.spec.requirements.loss import check_loss
from windtunnel.spec.requirements.mixers import check_mixers
from windtunnel.spec.requirements.optimizer import check_optimizer
from windtunnel.spec.requirements.precision import check_precision
from windtunnel.spec.requirements.sharding import check_sharding
from windtunnel.spec.requirements.unequal_ranks import check_unequal
from windtunnel.spec.runtime import Runtime
from windtunnel.spec.shapes import SHAPES, Places, check_batches, check_virtual
from windtunnel.spec.unequal import Unequal


def _model_kind(value: object) -> str:
    graph = value.get("kind") == "graph" if isinstance(value, Mapping) else isinstance(value, GraphModel)
    return "[GraphModel]" if graph else "[Model]"


def _tokens(value: object) -> object:
    """Text such as `15T` as a number; what is no text as it is."""
    return parse_count(value) if isinstance(value, str) else value


class Job(Noun):
    """One training job. `tokens` is the length of the whole run, if the report should say days and dollars."""

    name: Name = "job"
    model: Annotated[Annotated[Model, Tag("[Model]")] | Annotated[GraphModel, Tag("[GraphModel]")], Discriminator(_model_kind)]
    plan: Plan
    runtime: Runtime
    cluster: Cluster
    tokens: Annotated[PositiveFloat | None, BeforeValidator(_tokens)] = None
    seed: NonNegativeInt = 0
    unequal: Unequal | None = None
    calibration: Calibration | None = None
    reliability: Reliability | None = None
    source: str = ""

    @cached_property
    def dp(self) -> int:
        """Data-parallel ranks."""
        return self.plan.dp or self.cluster.gpus // (self.plan.tp * self.plan.cp * self.plan.pp)

    @cached_property
    def micro_batches(self) -> int:
        """Micro batches that each pipeline runs in a step."""
        return self.plan.global_batch // (self.plan.micro_batch * self.dp)

    @cached_property
    def shard_ranks(self) -> int:
        """Ranks that share one copy of the sharded state (optimizer, gradients, parameters): dp x cp, or `plan.shard_group`."""
        return min(self.plan.shard_group or self.dp * self.plan.cp, self.dp * self.plan.cp)

    @property
    def replicas(self) -> int:
        """Copies of the sharded state: dp x cp over the ranks that share one."""
        return self.dp * self.plan.cp // self.shard_ranks

    @cached_property
    def near_ranks(self) -> int:
        """Ranks of a sharding group that exchange with each other first: the secondary group, else those of one node if
        tensor parallelism is innermost."""
        inside = max(1, self.cluster.node.domain // self.plan.tp)
        return self.plan.secondary_group or math.gcd(self.shard_ranks, inside)

    @cached_property
    def expert_shard_ranks(self) -> int:
        """Ranks that share one copy of the experts' sharded state; each replica of the sharded state has its own."""
        return max(1, self.expert_dp // self.replicas)

    @cached_property
    def expert_dp(self) -> int:
        """Ranks of a stage that hold the same experts: tp x cp x dp / (ep x etp)."""
        return self.plan.tp * self.plan.cp * self.dp // (self.plan.ep * self.plan.etp)

    @property
    def cp_kind(self) -> CpKind | None:
        """Kind of context parallelism: the plan's, else the framework's, or an all-gather if that cannot run (unfused attention,
        sliding windows); None without context parallelism."""
        if self.plan.cp == 1:
            return None
        able = self.runtime.attention == "flash" and self.model.window is None
        return self.plan.cp_kind or (self.runtime.cp_kind if able else "all_gather")

    @property
    def cp_blocks(self) -> bool:
        """Whether attention runs over one rank's keys after another, and merges the results."""
        kind = self.cp_kind
        return kind in ("p2p", "a2a+p2p") or kind == "all_gather" and self.runtime.cp_library == "torch"

    @cached_property
    def cp_sizes(self) -> tuple[int, int]:
        """Context-parallel ranks that exchange heads, and those that pass keys round a ring or gather them."""
        kind, cp = self.cp_kind, self.plan.cp
        return (cp, 1) if kind == "a2a" else self.plan.cp_sizes or (1, cp) if kind == "a2a+p2p" else (1, cp)

    @cached_property
    def kernel_runtime(self) -> Runtime:
        """The runtime as its kernels run: Megatron's fused softmax takes no shape but those of `fuses_softmax`, and PyTorch's runs
        in its place."""
        if self.runtime.attention != "fused_softmax" or self.fuses_softmax or isinstance(self.model, GraphModel):
            return self.runtime
        return self.runtime.model_copy(update={"attention": "unfused"})

    @property
    def fuses_softmax(self) -> bool:
        """Whether Megatron's fused softmax takes this job's scores: 17 to 4,096 keys, and queries, keys and matrices of scores on
        a GPU (micro batch x heads) in fours (Megatron-LM, `FusedScaleMaskSoftmax.is_kernel_available`)."""
        plan, across = self.plan, self.cp_sizes
        matrices = plan.micro_batch * (self.model.heads // (plan.tp * across[0]))
        return 16 < plan.seq <= 4096 and not any(size % 4 for size in (plan.seq // across[1], plan.seq, matrices))

    @cached_property
    def layers_per_stage(self) -> tuple[tuple[int, ...], ...]:
        """Layers of each pipeline stage's virtual stages: `[stage][virtual stage]`."""
        plan = self.plan
        flat = plan.stages or (self.model.layers // (plan.pp * plan.vpp),) * (plan.pp * plan.vpp)
        return tuple(tuple(flat[part] for part in parts) for parts in self.places)

    @cached_property
    def places(self) -> Places:
        """The part of the model, in model order, of each pipeline stage's virtual stages: `[stage][virtual stage]`."""
        return SHAPES[self.plan.schedule_name].places(self.plan.pp, self.plan.vpp)

    @cached_property
    def copies(self) -> int:
        """Copies of the parameters in one pipeline: 2 if the schedule runs the model from both ends."""
        return SHAPES[self.plan.schedule_name].copies

    @cached_property
    def ends_meet(self) -> bool:
        """Whether embedding and head sit on the same stages, so that tied weights need no exchange between stages."""
        last = self.plan.pp * self.plan.vpp - 1
        return all((0 in parts) == (last in parts) for parts in self.places)

    @cached_property
    def padded_vocab(self) -> int:
        """Vocabulary padded to a multiple of `runtime.pad_vocab` x tp."""
        step = self.runtime.pad_vocab * self.plan.tp
        return math.ceil(self.model.vocab / step) * step


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
        check_adapters(job.model, job.plan)
        check_vision(job.model, job.plan)
        check_loss(job.runtime, job.plan)
    check_context(job.model, job.plan, job.runtime, job.cp_kind)
    check_experts(job.model, job.plan, job.dp)
    check_optimizer(job.plan, job.runtime, not isinstance(job.model, GraphModel))
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
    for field, groups in _key_heads(model).items():
        if model.heads % groups:
            raise PlanError(field, groups, f"a divisor of model.heads = {model.heads}", _divisors(model.heads))
    inner = {"ffn": model.ffn} if any(kind.feed == "dense" for kind in model.kinds) else {}
    shared = {"shared_ffn": model.shared_ffn} if model.experts and model.shared_ffn else {}
    for what, number in {"heads": model.heads, **inner, **shared}.items():
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
    if gpus > node.domain:
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
