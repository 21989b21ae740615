"""A job of reinforcement learning: a training job, whose plan is that of the update, and a table `rl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.rl.mode import MODES, RLMode
from windtunnel.rl.spec import PostTraining
from windtunnel.spec import Job, Model, load_job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.explain import explain
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.loading.load import override
from windtunnel.spec.loading.resolve import merge

WORKLOAD = "rl"
"""What the key `workload` of a job file says."""

_PLAN = {"sharding": "fsdp", "recompute": "full"}
"""The update's plan where the file states none: that of verl, TRL and OpenRLHF on PyTorch's FSDP."""

_FIRST = {"seq": 2048, "micro_batch": 1}
"""Fields of the plan that packing sets."""


@dataclass(frozen=True)
class RLJob:
    """`job`: model, machine, and plan and runtime of an update, whose sequences are set by packing; `rl`: the rest of a step.
    `notes`: what was assumed; `measured`: (phase, seconds) of a run of this job, "step" for all of a step."""

    name: str
    job: Job
    rl: PostTraining
    notes: tuple[str, ...] = ()
    measured: tuple[tuple[str, float], ...] = ()

    @property
    def model(self) -> Model:
        model = self.job.model
        assert not isinstance(model, GraphModel)
        return model

    @property
    def mode(self) -> RLMode:
        """Where and when the rollout runs."""
        return MODES[self.rl.mode]

    @property
    def train_gpus(self) -> int:
        """GPUs of the update."""
        return self.job.cluster.gpus - self.grouped_gpus - (0 if self.mode.shares_gpus else self.rl.rollout.gpus or 0)

    @property
    def grouped_gpus(self) -> int:
        """GPUs of roles apart from the update's and the rollout's."""
        return sum(group.gpus for group in self.rl.groups)

    @property
    def rollout_gpus(self) -> int:
        """GPUs of the rollout."""
        return self.train_gpus if self.mode.shares_gpus else self.rl.rollout.gpus or 0


def is_rl(table: Mapping[str, Any]) -> bool:
    """Whether the table of a job file is one of reinforcement learning."""
    return table.get("workload") == WORKLOAD or "rl" in table


def load_rl_job(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RLJob:
    """The job of a file or a table with `workload = "rl"`, with overrides such as `rl.prompts=256` or `plan.tp=2` on top.

    Raises SpecError, UnknownName, FileError or PlanError with what to type instead.
    """
    table = dict(source) if isinstance(source, Mapping) else read_table(Path(source))
    for text in overrides:
        table = merge(table, override(text))
    workload = table.pop("workload", WORKLOAD)
    if workload != WORKLOAD:
        raise SpecError("workload", workload, WORKLOAD, "Leave it out for a training job, and write `windtunnel predict`.")
    stated = table.pop("rl", {})
    if not isinstance(stated, dict):
        raise SpecError("rl", stated, "a table, such as rl.prompts = 512")
    plan = table.get("plan", {})
    if not isinstance(plan, dict):
        raise SpecError("plan", plan, "a table, such as plan.tp = 2")
    notes = []
    if not plan:
        plan = dict(_PLAN)
        notes.append("the update runs on FSDP with full recomputation")
    base = {} if "base" in table else {"runtime": {"framework": "fsdp" if plan.get("sharding") == "fsdp" else "megatron-core"}}
    job = load_job({"name": "rl", **base, **table, "plan": {"global_batch": 1, **_FIRST, **plan}})
    return check_rl_job(RLJob(job.name, job, _read(stated), tuple(notes)))


def _read(stated: dict[str, Any]) -> PostTraining:
    try:
        return PostTraining.model_validate(stated)
    except ValidationError as error:
        raise explain(error, PostTraining, "rl") from None


def check_rl_job(whole: RLJob) -> RLJob:
    """The job. PlanError for fields that contradict each other."""
    rl, cluster = whole.rl, whole.job.cluster
    if isinstance(whole.job.model, GraphModel):
        raise SpecError("model", whole.job.model.name, "a model of layers", "A graph model has no cache of keys and values.")
    if rl.prompts % rl.mini:
        near = [n for n in range(1, rl.prompts + 1) if rl.prompts % n == 0]
        best = min(near, key=lambda n: abs(n - rl.mini))
        raise PlanError("rl.mini_batch", rl.mini, f"a divisor of rl.prompts = {rl.prompts}", f"Write rl.mini_batch = {best}.")
    _check_groups(whole)
    rest = cluster.gpus - whole.grouped_gpus
    if not whole.mode.shares_gpus:
        half = max(rest // 2, 1)
        if rl.rollout.gpus is None:
            raise SpecError(
                "rl.rollout.gpus", None, f"the GPUs of the rollout in mode {rl.mode}", f"Write rl.rollout.gpus = {half}."
            )
        if rl.rollout.gpus >= rest:
            whose = "the cluster's" if rest == cluster.gpus else "what its groups of roles leave:"
            raise PlanError("rl.rollout.gpus", rl.rollout.gpus, f"less than {whose} {rest} GPUs", f"Write {half}.")
    whole.mode.check(rl, rest)
    _check_fields_of_modes(rl)
    for field in ("tool_tokens", "tool_seconds"):
        if rl.turns == 1 and field in rl.model_fields_set:
            raise PlanError(f"rl.{field}", getattr(rl, field), "only with rl.turns of 2 or more")
    copy = (rl.rollout.tp or 1) * rl.rollout.pp * rl.rollout.dp
    if rl.rollout.tp is not None and whole.rollout_gpus % copy:
        most = max(copy, whole.rollout_gpus // copy * copy)
        raise SpecError("rl.rollout.gpus", whole.rollout_gpus, f"a multiple of {copy}, the GPUs of a copy", f"Write {most}.")
    return whole


def _check_groups(whole: RLJob) -> None:
    """PlanError for groups that name a role twice or one that the step has not, and for GPUs that leave none to the update."""
    rl, gpus = whole.rl, whole.job.cluster.gpus
    for role in rl.roles_apart:
        if rl.roles_apart.count(role) > 1:
            raise PlanError("rl.groups", f"{role} twice", "each role in one group")
        if not rl.has_role(role):
            field = "reward_model" if role == "reward" else role
            raise PlanError("rl.groups", role, "roles that the step has", f"Write rl.{field} = true, or leave the role out.")
    if rl.groups and whole.grouped_gpus >= gpus:
        raise PlanError("rl.groups", f"{whole.grouped_gpus} GPUs", f"less than the cluster's {gpus} GPUs")


def _check_fields_of_modes(rl: PostTraining) -> None:
    """PlanError for a stated field that belongs to other modes alone."""
    for field in sorted(rl.model_fields_set - {"mode"}, key=list(PostTraining.model_fields).index):
        owners = [name for name, mode in MODES.items() if field in mode.fields]
        if owners and rl.mode not in owners:
            raise PlanError(f"rl.{field}", getattr(rl, field), f'only with rl.mode = "{owners[0]}"')
