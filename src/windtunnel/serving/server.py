"""A model on GPUs behind an engine: the plan, the number formats, and the training noun whose graph and prices it shares."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, get_args

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.dtypes import FORMATS, STATED
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.compute.engines.seconds import priced_as
from windtunnel.serving.engine import ENGINES, EngineSettings, ServeEngine
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.tiers import CacheTier
from windtunnel.spec import Cluster, Job, Model, load_job
from windtunnel.spec.common import CacheFormat
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.model import Checkpoint, formats_in_words

CACHES = get_args(CacheFormat)
"""Number formats of the cache."""


@dataclass(frozen=True)
class ServePlan:
    """How one copy of the model lies on GPUs: `tp` ranks share attention heads, `dp` groups of them have requests of their own and
    share the experts (DP attention), `ep` of the `tp` x `dp` ranks divide the experts, `pp` stages divide the layers."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one copy."""
        return self.tp * self.pp * self.dp

    @property
    def expert_ranks(self) -> int:
        """Ranks that share a layer's experts."""
        return self.tp * self.dp


@dataclass(frozen=True)
class Server:
    """What `serve` predicts for: `job` has model and machine (its plan and runtime are those of one forward pass), `weights`
    (of experts, where there are any), `attention_weights` and `dense_weights` (of other MLPs) are number formats of
    `base.dtypes.FORMATS`, `kv` of CACHES. `speculation`: None without drafts. `checkpoint`: where the formats are from, if
    the model says them. `context`: stated tokens of a request at most, for which a copy has to have room. `tiers`:
    of the cache, behind the GPUs', of each copy."""

    job: Job
    plan: ServePlan
    engine: ServeEngine
    weights: str
    attention_weights: str
    kv: str
    speculation: Speculation | None = None
    dense_weights: str = "bf16"
    checkpoint: str = ""
    context: int | None = None
    tiers: tuple[CacheTier, ...] = ()

    @property
    def formats(self) -> str:
        """The formats of the weights in words."""
        return formats_in_words(self.weights, self.attention_weights, self.dense_weights)

    @cached_property
    def model(self) -> Model:
        model = self.job.model
        assert not isinstance(model, GraphModel)
        return model

    @property
    def drafts(self) -> int:
        """Drafted tokens of a decoding request in each pass."""
        return 0 if self.speculation is None else self.speculation.drafts

    @cached_property
    def drafter(self) -> Server | None:
        """The small model that drafts, on the GPUs of each DP-attention rank, in formats of its own: 16 bits."""
        small = None if self.speculation is None else self.speculation.model
        if small is None:
            return None
        tp = max(tp for tp in range(1, self.plan.tp + 1) if self.plan.tp % tp == 0 and small.heads % tp == 0)
        job = with_plan(self.job.model_copy(update={"model": small}), {"tp": tp, "ep": 1, "etp": 1, "dp": None})
        engine = replace(self.engine, gap=0.0, request_gap=0.0, sent=0.0)
        return Server(job, ServePlan(tp=tp), engine, "bf16", "bf16", self.kv)

    @property
    def replicas(self) -> int:
        """Copies of the model on the cluster's GPUs."""
        return self.job.cluster.gpus // self.plan.gpus

    @property
    def lanes(self) -> int:
        """Batches that run beside each other: one for each replica, DP-attention rank and pipeline stage."""
        return self.replicas * self.plan.dp * self.plan.pp


RUNTIME: dict[str, Any] = {
    "framework": "megatron-core",
    "precision": "bf16",
    "launch": "cuda_graph",
    "attention": "flash",
    "fused_norm": True,
    "fused_activation": True,
    "fused_rope": True,
    "overlap_tp": False,
    "moe_fused_router": True,
    "moe_router_dtype": "bf16",
    "moe_host_wait": False,
    "moe_grouped_gemm": "one",
    "pad_vocab": 1,
}
"""Switches of the training graph that a forward pass of an engine has: fused kernels, captured graphs."""


def server_of(
    model: Model | dict[str, Any],
    cluster: Cluster | dict[str, Any] | str,
    gpus: int | None = None,
    engine: str = ENGINES.default,
    plan: ServePlan | None = None,
    *,
    weights: str | None = None,
    attention_weights: str | None = None,
    kv: str | None = None,
    step_tokens: int | None = None,
    running: int | None = None,
    memory: float | None = None,
    polls: int | None = None,
    speculation: Speculation | None = None,
    context: int | None = None,
    eager: bool = False,
    sync: bool = False,
    graphs: str | None = None,
    whole_prompts: bool = False,
    release: str | None = None,
    expert_kernel: str | None = None,
    ahead: bool = False,
    overrides: list[str] | None = None,
) -> Server:
    """A checked server of `model` on `gpus` of `cluster`.

    Without a `plan`, tensor parallelism over all GPUs of a node that divides the heads. Without `weights` and `kv`, the formats of
    the model's checkpoint. From `step_tokens` on, but `speculation` and `context`: settings of the engine, as `EngineSettings` has
    them.
    `attention_weights`: format of attention's projections where it differs; NVFP4 checkpoints with latent attention keep them in
    bf16 (NVIDIA's DeepSeek-R1-FP4). Raises SpecError or PlanError with what to type instead.
    """
    for path, value in (("weights", weights), ("attention_weights", attention_weights), ("kv", kv)):
        allowed: tuple[str, ...] = CACHES if path == "kv" else STATED
        if value is not None and value not in allowed:
            raise SpecError(path, value, ", ".join(allowed))
    limited = [f"model.max_seq={context}"] if context is not None else []
    probe = probe_job(model, cluster, gpus, [*limited, *(overrides or [])])
    assert not isinstance(probe.model, GraphModel)
    chosen = plan or first_plan(probe.model, probe.cluster)
    check_plan(probe.model, probe.cluster, chosen)
    settings = EngineSettings(
        step_tokens, running, memory, polls, eager, sync, graphs, whole_prompts, release, expert_kernel, ahead
    )
    limits = settings.engine(engine, probe.cluster.gpu, chosen.tp)
    if speculation is not None:
        limits = ENGINES.find(engine).with_drafts(limits, release, ahead)
    own = probe.model.checkpoint or Checkpoint()
    taken = own.said_by if weights is None else ""
    if weights is None:
        weights, dense, attention = own.weights, own.dense or own.weights, own.attention
    else:
        dense, attention = weights, None
    if attention_weights is None:
        attention_weights = attention or ("bf16" if probe.model.latent and weights == "nvfp4" else weights)
    degrees = {"tp": chosen.tp, "pp": 1, "ep": chosen.ep, "etp": chosen.expert_ranks // chosen.ep, "sequence_parallel": False}
    job = with_plan(probe, degrees)
    return Server(job, chosen, limits, weights, attention_weights, kv or own.kv or "bf16", speculation, dense, taken, context)


def probe_job(
    model: Model | dict[str, Any], cluster: Cluster | dict[str, Any] | str, gpus: int | None, overrides: list[str]
) -> Job:
    """Model and machine as a job of one sequence. SpecError for a model without layers."""
    model_table = model if isinstance(model, dict) else model.model_dump(mode="json", exclude_none=True)
    cluster_table = cluster.model_dump(mode="json", exclude_none=True) if isinstance(cluster, Cluster) else cluster
    table = {"name": "serve", "model": model_table, "runtime": dict(RUNTIME), "cluster": cluster_table}
    stated = [f"cluster.gpus={gpus}"] if gpus is not None else []
    probe = load_job({**table, "plan": {"global_batch": 1, "seq": 1}}, [*stated, *overrides])
    if isinstance(probe.model, GraphModel):
        raise SpecError("model", probe.model.name, "a model of layers", "A graph model has no cache of keys and values.")
    return probe


def with_plan(job: Job, fields: dict[str, Any]) -> Job:
    """`job` with these fields of its plan; what it has worked out from its old plan is left behind."""
    return job.model_copy(update={"plan": job.plan.model_copy(update=fields)})


def first_plan(model: Model, cluster: Cluster, others: int = 1) -> ServePlan:
    """Tensor parallelism over as many GPUs of a node as divide the heads; `others`: what else divides the GPUs."""
    most = max(1, min(cluster.gpus, cluster.node.gpus) // others)
    fitting = [tp for tp in range(1, most + 1) if cluster.gpus % (tp * others) == 0 and model.heads % tp == 0]
    return ServePlan(tp=max(fitting, default=1))


def first_plan_of(
    model: Model | dict[str, Any], cluster: Cluster | dict[str, Any] | str, gpus: int | None, overrides: list[str], others: int
) -> ServePlan:
    """`first_plan` of a model and a machine that are not resolved yet; without `gpus`, those of a node."""
    probe = probe_job(model, cluster, gpus, overrides)
    if gpus is None:
        probe = probe_job(model, cluster, probe.cluster.node.gpus, overrides)
    assert not isinstance(probe.model, GraphModel)
    return first_plan(probe.model, probe.cluster, others)


def server_model(
    model: Model | dict[str, Any], cluster: Cluster | dict[str, Any] | str, gpus: int | None, overrides: list[str]
) -> Model:
    """The model that is served, with its changed fields."""
    found = probe_job(model, cluster, gpus, overrides).model
    assert not isinstance(found, GraphModel)
    return found


def prefill_of(text: str) -> tuple[int, ServePlan]:
    """(GPUs, plan of a copy) of `gpus=8,tp=4`; one copy without `gpus`. SpecError for other words."""
    degrees: dict[str, int] = {}
    for word in text.split(","):
        name, _, value = word.strip().partition("=")
        if name not in ("gpus", "tp", "pp", "dp", "ep") or not value.strip().isdecimal() or int(value) < 1:
            raise SpecError("prefill", text, "gpus, tp, pp, dp and ep with positive numbers, such as gpus=8,tp=4")
        degrees[name] = int(value)
    gpus = degrees.pop("gpus", None)
    plan = ServePlan(**degrees)
    return gpus or plan.gpus, plan


def check_plan(model: Model, cluster: Cluster, plan: ServePlan) -> None:
    """PlanError for degrees that do not divide what they cut."""
    for name in ("tp", "pp", "dp", "ep"):
        if getattr(plan, name) < 1:
            raise SpecError(name, getattr(plan, name), "a positive number")
    if cluster.gpus % plan.gpus:
        near = [one for one in range(1, cluster.gpus + 1) if cluster.gpus % one == 0]
        raise PlanError(
            "plan", f"tp {plan.tp} x dp {plan.dp} x pp {plan.pp} = {plan.gpus}", f"a divisor of {cluster.gpus} GPUs: {near}",
            f"Write --gpus {math.ceil(cluster.gpus / plan.gpus) * plan.gpus}.",
        )  # fmt: skip
    if model.heads % plan.tp:
        fits = [tp for tp in range(1, model.heads + 1) if model.heads % tp == 0][:12]
        raise PlanError("tp", plan.tp, f"a divisor of {model.heads} attention heads: {fits}")
    if plan.pp > model.layers:
        raise PlanError("pp", plan.pp, f"at most {model.layers} layers")
    if plan.ep > 1 and not model.experts:
        raise PlanError("ep", plan.ep, f"1: {model.name} has no experts")
    if plan.expert_ranks % plan.ep or (model.experts or plan.ep) % plan.ep:
        raise PlanError("ep", plan.ep, f"a divisor of tp x dp = {plan.expert_ranks} and of {model.experts} experts")


def narrower_weights(server: Server) -> str | None:
    """The next narrower format of weights that the GPU has kernels for; None below 8 bits."""
    quarter = "nvfp4" if priced_as(server.job.cluster.gpu, "nvfp4") == "nvfp4" else "int4"
    return {2.0: "fp8", 1.0: quarter}.get(FORMATS[server.weights].width)


def more_room(server: Server) -> str:
    """What leaves more room for caches."""
    words = [f"--weights {form}"] if (form := narrower_weights(server)) else []
    words = ["--kv fp8", *words] if server.kv == "bf16" else words
    return f"More GPUs to a copy (--tp){', ' if words else ' '}{' or '.join(words)}{' ' if words else ''}leave more room."
