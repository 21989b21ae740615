"""Levers with their prices: what each change of the list gains on a job, by a prediction of its own.

When a framework can do a change: it has a word for it, and what it demands beside it holds.

Megatron-Core: `megatron/core/transformer/transformer_config.py` refuses shared-expert overlap with another dispatcher than
alltoall, overlap of expert-parallel calls with full recompute, with shared-expert overlap or with a pipeline without virtual
stages;
`megatron/training/arguments.py` turns overlap of pipeline transfers off without virtual stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from windtunnel.base.errors import WindtunnelError
from windtunnel.search.change import Change, apply_or_none, predict_or_none
from windtunnel.search.facts import Stepped, facts_of
from windtunnel.search.levers.flags import flags_of, framework_table
from windtunnel.search.levers.registry import LEVERS, TRAINING, ListedLever
from windtunnel.spec import Job

GAIN = 0.003
"""Gains below this share of the step are not shown: predictions cannot distinguish less."""


LOSS = 5e-4
"""Share of the step below which a loss is not worth the levers that are for it."""


@dataclass(frozen=True)
class PricedLever:
    """A change of `lever` with the prediction's step, the share `gain` by which a token gets cheaper, whether it `fits` and the
    flags of its framework. `part`: the loss of the breakdown that it shortens most. `trains_otherwise`: it changes what is
    trained."""

    lever: str
    change: Change
    step_time_s: float
    gain: float
    fits: bool
    part: str
    flags: tuple[str, ...]
    trains_otherwise: bool

    @property
    def helps(self) -> bool:
        """Whether it gains enough to be told apart, fits, trains the same, and is the job's to choose, not the machine's."""
        machine = any(path.startswith(("cluster.", "unequal")) for path, _ in self.change.fields)
        return self.gain > GAIN and self.fits and not self.trains_otherwise and not machine


def list_offers(job: Job, levers: tuple[ListedLever, ...] = LEVERS) -> Iterator[tuple[ListedLever, Change]]:
    """Every change of the list that is one for `job` and that its framework can do, each once."""
    seen: set[Change] = set()
    for lever in levers:
        for candidate in lever.changes(job):
            change = candidate.without_no_ops(job)
            if not change.fields or change in seen:
                continue
            seen.add(change)
            after = apply_or_none(job, change)
            if after is not None and can_do(after, change):
                yield lever, change


def price_levers(base: Stepped, least: float = LOSS, progress: Callable[[], object] = lambda: None) -> tuple[PricedLever, ...]:
    """All levers of a closed-form prediction's job, the largest gain first; those that train otherwise last.

    A lever is not predicted where the losses that it is for are below the share `least` of the step. A lever of a job that fits has
    to leave it fitting to come before one that does not.
    """
    losses = {part: seconds for part, seconds in base.breakdown.items() if seconds >= least * base.step_time_s}
    priced = []
    for lever, change in list_offers(base.job, tuple(one for one in LEVERS if not one.parts or losses.keys() & set(one.parts))):
        progress()
        other = predict_or_none(base.job, change)
        if other is not None:
            priced.append(_price(base, lever, change, other))
    return tuple(sorted(priced, key=lambda one: (one.trains_otherwise, base.fits and not one.fits, -one.gain)))


def _price(base: Stepped, lever: ListedLever, change: Change, other: Stepped) -> PricedLever:
    parts = [part for part in lever.parts if part in base.breakdown]
    if not parts:
        parts = sorted(base.breakdown)
    saved = {part: base.breakdown[part] - other.breakdown.get(part, 0.0) for part in parts}
    part = max(parts, key=lambda one: saved[one])
    trains = any(path in TRAINING for path, _ in change.fields)
    gain = 1.0 - base.tokens_per_s / other.tokens_per_s
    return PricedLever(lever.name, change, other.step_time_s, gain, other.fits, part, flags_of(other.job, change.fields), trains)


def first_lever_or_none(job: Job) -> PricedLever | None:
    """As `first_lever`; also None for a job that cannot be predicted."""
    try:
        return first_lever(job)
    except WindtunnelError:
        return None


def first_lever(job: Job) -> PricedLever | None:
    """What to change first: the lever that gains most; None if none does."""
    return next((one for one in price_levers(facts_of(job)) if one.helps), None)


NOT_OF_A_FRAMEWORK = ("cluster.", "unequal", "plan.dp", "runtime.data.", "runtime.host")
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
        if _is_of_no_framework(job, path) or value in OFF or path in FOLLOWERS and len(change.fields) > 1:
            continue
        writer = table.get(path)
        if writer is None and any(path.startswith("runtime.") and other == "runtime.launch" for other, _ in change.fields):
            continue  # what comes with a way to launch
        if writer is None or writer(job, value) is None:
            return False
    if any(path == "runtime.moe_dispatch" for path, _ in change.fields) and not _gpus_can_dispatch(job):
        return False
    return job.runtime.framework not in MEGATRON or _megatron_can(job)


DISPATCHING = ("ampere", "hopper", "blackwell")
"""GPUs for which there are kernels of DeepEP and HybridEP (Megatron-Bridge's `training/flex_dispatcher_backend.py`: compute
capability 8, 9 and 10); they write to each other's memory over NVLink, through switches here."""


def _gpus_can_dispatch(job: Job) -> bool:
    """Whether the machine runs the kernels of `runtime.moe_dispatch`: DeepEP's know a domain of 8 GPUs, HybridEP's any."""
    kind, node = job.runtime.moe_dispatch, job.cluster.node
    if kind not in ("deepep", "hybridep"):
        return True
    reach = kind == "hybridep" or node.domain <= 8
    return node.gpu.architecture in DISPATCHING and node.scale_up.kind == "nvswitch" and reach


def _is_of_no_framework(job: Job, path: str) -> bool:
    """Whether a field needs no word: offload does, of weights with every framework, else with tools whose files are read."""
    if path.startswith("plan.offload."):
        return path.endswith("optimizer_fraction") or job.runtime.tool is None and path != "plan.offload.parameters"
    return path.startswith(NOT_OF_A_FRAMEWORK)


def _megatron_can(job: Job) -> bool:
    plan, runtime = job.plan, job.runtime
    shared = bool(getattr(job.model, "shared_ffn", 0)) and runtime.moe_shared_overlap
    if shared and runtime.moe_dispatch != "alltoall":
        return False
    if runtime.moe_a2a_overlap and (plan.recompute == "full" or shared or plan.pp > 1 and plan.vpp == 1):
        return False
    return plan.vpp == 1 or plan.micro_batch * job.dp * plan.pp <= plan.global_batch
