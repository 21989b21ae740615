"""What a step of reinforcement learning states beside its training job: the table `rl` of a job file. What an RL trainer does
between the phases of a step: `catalog/rl_trainers.toml`, an entry for each that was read.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.rl.mode import MODES
from windtunnel.serving.engine import ENGINES
from windtunnel.spec.common import (
    CacheFormat,
    Flag,
    Fraction,
    LengthText,
    NonNegativeFloat,
    NonNegativeInt,
    Noun,
    PositiveInt,
    WeightFormatName,
)
from windtunnel.spec.loading.files import ROOT, read_table

SERIALISED, DESERIALISED = 0.406e9, 1.42e9
"""B/s at which a controller writes a batch for its workers (torch.save into memory) and at which one is read: 2.58 and 0.74 s for
6,400 x 20,480 integers of 8 bytes (volcengine/verl pull request 3425)."""

RETURNED = 8
"""Bytes of each position of a response that workers send back from log-probabilities: these and entropies, of 4 bytes."""

PAGEABLE_OUT, PAGEABLE_BACK = 2.8e9, 6e9
"""B/s of a GPU's copy to host memory that is not pinned, allocated with each copy, and back. Out: H200, PCIe 5 (sgl-project/sglang
pull request 32032; 1.4 on an A100, pytorch/pytorch pull request 138018). Back, where pages are there already: assumed."""


@dataclass(frozen=True)
class RLTrainerFacts:
    """An entry of the catalogue, whose head says what each field means; the defaults are those of a trainer without one."""

    bins: bool = False
    scored_bytes: float = 0.0
    updated_bytes: float = 0.0
    padded_to: Literal["cap", "longest", "none"] = "longest"
    packs: bool = True
    pageable: Literal["none", "optimizer", "all"] = "none"
    moves_in_phases: bool = False
    swaps_reference: bool = False
    tensor_s: float = 0.3e-3
    overlaps_refit: bool = False
    keeps_cache: bool = False
    source: str = ""


PLAIN = RLTrainerFacts()
"""A trainer of which nothing is known: no path of data, pinned copies, 0.3 ms a tensor (assumed)."""


@functools.cache
def catalogue_trainers() -> Mapping[str, RLTrainerFacts]:
    """The catalogue's entries by name."""
    return {name: RLTrainerFacts(**entry) for name, entry in read_table(ROOT / "rl_trainers.toml").items()}


def check_trainer(name: object) -> object:
    """The name of an entry. SpecError for another."""
    if isinstance(name, str) and name not in catalogue_trainers():
        raise SpecError("rl.trainer", name, ", ".join(sorted(catalogue_trainers())), "Leave it out for another trainer.")
    return name


def trainer_facts(name: str | None) -> RLTrainerFacts:
    """The entry of `name`; `PLAIN` for None."""
    return PLAIN if name is None else catalogue_trainers()[name]


WITH_CRITIC = ("ppo",)
WITH_REFERENCE = ("grpo", "ppo")
"""Algorithms that have a critic, and a penalty for distance from a reference policy, unless the job says otherwise (Schulman et
al., 2017; Shao et al., DeepSeekMath, 2024; DAPO drops the penalty, Yu et al., 2025)."""


RLModeName = Annotated[str, BeforeValidator(MODES.check), Field(json_schema_extra=MODES.add_names)]
"""A member of `rl.mode.MODES`."""

EngineName = Annotated[str, BeforeValidator(ENGINES.check), Field(json_schema_extra=ENGINES.add_names)]
"""A member of `serving.engine.ENGINES`."""


TrainerName = Annotated[str, BeforeValidator(check_trainer)]
"""An entry of `catalog/rl_trainers.toml`."""

RoleName = Literal["critic", "reference", "reward"]
"""Roles of a step beside the actor, which is updated, and the rollout."""


class RoleGroup(Noun):
    """Roles that have GPUs of their own, with the plan of the update."""

    roles: tuple[RoleName, ...] = Field(min_length=1, description="roles that take turns on these GPUs")
    gpus: PositiveInt = Field(description="GPUs of the group")
    beside: Flag = Field(default=True, description="its phases run while those of other groups do; else one by one")

    @property
    def label(self) -> str:
        """Its roles in words, by which phases and memory name its GPUs."""
        return " and ".join(self.roles)


class RolloutSpec(Noun):
    """The engine that generates, and the plan of one copy of it; copies fill the rollout's GPUs."""

    engine: EngineName = Field(default=ENGINES.default, description="the engine that generates")
    gpus: PositiveInt | None = Field(default=None, description="GPUs for rollout alone; needed in all modes but colocated")
    tp: PositiveInt | None = Field(default=None, description="tensor-parallel ranks of a copy; default: the fewest that leave room")
    pp: PositiveInt = 1
    dp: PositiveInt = Field(default=1, description="DP attention: groups of tp ranks that share the experts")
    ep: PositiveInt = 1
    weights: WeightFormatName = Field(default="bf16", description="format of the engine's weights")
    kv: CacheFormat = "bf16"
    memory: Fraction | None = Field(
        default=None,
        description="share of GPU memory that the engine may use; default: what colocated training leaves, up to the engine's",
    )
    running: PositiveInt | None = Field(default=None, description="requests at once in a copy; default: the engine's")
    step_tokens: PositiveInt | None = Field(default=None, description="tokens of a forward pass; default: the engine's")
    speculate: str | None = Field(
        default=None, max_length=200, description='what drafts tokens, such as "mtp,drafts=2,accepted=2.2"; default: nothing'
    )
    graphs: Flag = Field(default=True, description="passes are captured CUDA graphs (vLLM's enforce_eager=False)")
    ahead: Flag = Field(default=False, description="the engine schedules a pass while the one before it runs (async scheduling)")


class PostTraining(Noun):
    """A step: `prompts` prompts with `samples` responses each, log-probabilities, and an update for each mini batch of prompts."""

    algorithm: Literal["grpo", "ppo", "dapo"] = "grpo"
    mode: RLModeName = Field(default=MODES.default, description="where and when the rollout runs")
    trainer: TrainerName | None = Field(
        default=None,
        description="whose packing, data path, copies to the host and sync of weights: verl, nemo-rl, slime, openrlhf or trl; "
        "default: none of these",
    )
    prompts: PositiveInt = Field(default=512, description="prompts of a step that are learned from")
    samples: PositiveInt = Field(default=8, description="responses of each prompt")
    mini_batch: PositiveInt | None = Field(default=None, description="prompts of an update; default: all of the step")
    epochs: PositiveInt = Field(default=1, description="times that the update passes over a step's samples")
    prompt: LengthText = Field(default="256", description="prompt tokens: N, LOW-HIGH, MEAN~CV, MEAN~CV<CAP, or a file of lengths")
    response: LengthText = Field(
        default="2048~1<8192", description="generated tokens of a response, over all of its turns, likewise"
    )
    keep: Fraction = Field(
        default=1.0, description="share of the prompts whose responses differ; the others are drawn again (DAPO)"
    )
    pack_tokens: PositiveInt = Field(default=16384, description="most tokens of a micro batch of the update on a model replica")
    logprob_tokens: PositiveInt | None = Field(
        default=None, description="most tokens of one of log-probabilities; default: twice as many"
    )
    padded: PositiveInt | Literal["longest"] | None = Field(
        default=None,
        description="positions that a sample takes in updates and log-probabilities: so many, or those of the longest of its micro "
        "batch (verl's use_remove_padding=False); default: its tokens alone",
    )
    reference: Flag | None = Field(
        default=None, description="log-probabilities of a reference policy; default: as the algorithm has it"
    )
    critic: Flag | None = Field(default=None, description="a critic as large as the policy; default: as the algorithm has it")
    reward_model: Flag = Field(default=False, description="a reward model as large as the policy scores each sample")
    groups: tuple[RoleGroup, ...] = Field(
        default=(), description="GPUs of roles apart from the update's; roles that no group names are on the GPUs of the update"
    )
    old_logprobs: Flag | None = Field(
        default=None, description="the policy's log-probabilities are computed again before updates; default: as the mode has it"
    )
    reward_seconds: NonNegativeFloat = Field(default=0.0, description="seconds of rewards that nothing else hides, once a step")
    turns: PositiveInt = Field(default=1, description="turns of a response: after each but the last a tool answers")
    tool_tokens: NonNegativeInt = Field(default=256, description="tokens of a tool's answer")
    tool_seconds: NonNegativeFloat = Field(default=1.0, description="seconds of a tool's answer")
    offload: Literal["none", "optimizer", "all"] = Field(
        default="none", description="what of the training state waits in host memory during rollout"
    )
    staleness: NonNegativeFloat = Field(
        default=0.5, le=16, description="async: samples that rollout may be ahead of the update, in batches between two syncs"
    )
    sync_every: PositiveInt = Field(default=1, description="async: updates between two syncs of the weights")
    require: PositiveInt = Field(default=1, description="async: mini batches that an update waits for")
    partial: Flag = Field(default=True, description="async: a sync interrupts responses, which go on with the new weights")
    seed: NonNegativeInt = 1
    rollout: RolloutSpec = Field(default=RolloutSpec())

    @property
    def mini(self) -> int:
        """Prompts of an update."""
        return self.mini_batch or self.prompts

    @property
    def has_reference(self) -> bool:
        return self.algorithm in WITH_REFERENCE if self.reference is None else self.reference

    @property
    def has_critic(self) -> bool:
        return self.algorithm in WITH_CRITIC if self.critic is None else self.critic

    def has_role(self, role: str) -> bool:
        """Whether the step has a role of `RoleName`."""
        return {"critic": self.has_critic, "reference": self.has_reference, "reward": self.reward_model}[role]

    @property
    def roles_apart(self) -> tuple[str, ...]:
        """Roles on GPUs of their own."""
        return tuple(role for group in self.groups for role in group.roles)

    @property
    def trains_critic_too(self) -> bool:
        """Whether the GPUs of the update hold a critic."""
        return self.has_critic and "critic" not in self.roles_apart

    @property
    def has_old_logprobs(self) -> bool:
        return MODES[self.mode].old_logprobs if self.old_logprobs is None else self.old_logprobs
