"""Job = model x plan x runtime x cluster: all inputs of a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, Discriminator, Tag

from windtunnel.base.units import parse_count
from windtunnel.spec.calibration import Calibration
from windtunnel.spec.common import Name, NonNegativeInt, Noun, PositiveFloat
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.machine import Cluster
from windtunnel.spec.model import Model
from windtunnel.spec.plan import CpKind, Plan
from windtunnel.spec.reliability import Reliability
from windtunnel.spec.runtime import Runtime
from windtunnel.spec.shapes import SHAPES, Places
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
    def has_frozen_weights(self) -> bool:
        """Whether weights are used that are not trained: under adapters, or all of a frozen model."""
        return not isinstance(self.model, GraphModel) and (self.model.lora is not None or self.model.frozen)

    @property
    def whole_in_step(self) -> bool:
        """Whether parameters are gathered once a step and gradients reduced once, though ranks keep shards of them only."""
        return self.plan.shards_parameters and self.plan.pp > 1 and self.runtime.whole_in_pipeline

    @property
    def replicas(self) -> int:
        """Copies of the sharded state: dp x cp over the ranks that share one."""
        return self.dp * self.plan.cp // self.shard_ranks

    @cached_property
    def near_ranks(self) -> int:
        """Ranks of a sharding group that exchange with each other first: the secondary group, else those of one node if
        tensor parallelism is innermost."""
        inside = max(1, self.cluster.domain // self.plan.tp)
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

    @property
    def vocab_elements(self) -> int:
        """Elements on one GPU of the embedding of words, and of the output matrix."""
        return self.padded_vocab // self.plan.tp * self.model.hidden
