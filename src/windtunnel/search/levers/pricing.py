"""Levers with their prices: what each change of the list gains on a job, by a prediction of its own.

When a framework can do a change: it has a word for it, and what it demands beside it holds.

Megatron-Core: `megatron/core/transformer/transformer_config.py` refuses shared-expert overlap with another dispatcher than
alltoall, overlap of expert-parallel calls with full recompute, with shared-expert overlap or with a pipeline without virtual
stages;
`megatron/training/arguments.py` turns overlap of pipeline transfers off without virtual stages.

A change of a job in the words of the framework that runs it: Megatron-LM's flags, torchtitan's options, DeepSpeed's keys.

pricing.toml has the words; here is what reads them, and what depends on more of the job than the value.

Names: Megatron-LM `megatron/training/arguments.py`, Megatron-Bridge's `ConfigContainer` and `CommOverlapConfig`, torchtitan
`config/job_config.py`, DeepSpeed's configuration reference, PyTorch's FSDP. A field that a framework has no word for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.base.files import table_beside
from windtunnel.search.change import Change, Stepped, apply_or_none, facts_of, plain_text, predict_or_none
from windtunnel.search.levers.registry import LEVERS, TRAINING, ListedLever
from windtunnel.spec import Job

Writer = Callable[[Job, Any], str | None]
"""(job with the change, value) -> what to type, or None where the framework has no word for this value."""


def flags_of(job: Job, fields: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """What to give the framework of `job`, which has the new values, for `fields`; empty if it has a word for none of them."""
    table = framework_table(job) or {}
    written = (table[path](job, value) for path, value in fields if path in table and value is not None)
    return tuple(dict.fromkeys(text for text in written if text))


def framework_table(job: Job) -> Mapping[str, Writer] | None:
    """The words of the job's tool, else of its framework, by field; None for one whose words are not known."""
    return _tables().get(job.runtime.tool or "") or _tables().get(job.runtime.framework)


def framework_name(job: Job) -> str:
    """What the users of a tool, or of a framework, call it."""
    known, framework = table_beside(__file__)["frameworks"], job.runtime.framework
    return str((known.get(job.runtime.tool or "") or known.get(framework, {})).get("name", framework))


@cache
def _tables() -> dict[str, dict[str, Writer]]:
    """Framework of the catalogue -> field -> how to write it."""
    data = table_beside(__file__)
    names = dict.fromkeys((*data, *_OF_JOBS))
    parts = {name: {path: _writer(said) for path, said in data.get(name, {}).items()} | _OF_JOBS.get(name, {}) for name in names}
    return {
        framework: {path: writer for part in entry["of"] for path, writer in parts[part].items()}
        for framework, entry in data["frameworks"].items()
    }


def _writer(said: str | Mapping[str, str]) -> Writer:
    """Of a template, or of what to type by value; a switch has "true" and "false"."""
    if isinstance(said, str):
        return lambda _, value: said.format(value=plain_text(value), joined=str(value).replace("_", ""))
    return lambda _, value: said.get(plain_text(value))


def _megatron_vpp(job: Job, value: int) -> str | None:
    layers, parts = job.model.layers, job.plan.pp * value
    return f"--num-layers-per-virtual-pipeline-stage {layers // parts}" if value > 1 and layers % parts == 0 else None


def _megatron_recompute_layers(job: Job, value: int) -> str | None:
    return f"--recompute-method block --recompute-num-layers {value}" if job.plan.recompute == "full" else None


def _megatron_stages(job: Job, value: tuple[int, ...]) -> str | None:
    """Fewer layers at the ends have flags of their own; other layouts are written out."""
    if job.plan.vpp == 1 and len(set(value[1:-1])) <= 1:
        return f"--decoder-first-pipeline-num-layers {value[0]} --decoder-last-pipeline-num-layers {value[-1]}"
    layers = ["t" * count for count in value]
    layers[0], layers[-1] = f"E{layers[0]}", f"{layers[-1]}L"
    return f"--pipeline-model-parallel-layout {'|'.join(layers)}"


def _modules(word: str, joint: str, end: str = "") -> Writer:
    """Only where they are run again."""
    return lambda job, value: f"{word}{joint.join(value)}{end}" if job.plan.recompute == "selective" else ""


def _accumulation(job: Job) -> str:
    """Micro batches of a step, as all tools on transformers' Trainer name them."""
    return f"gradient_accumulation_steps: {max(1, job.plan.global_batch // (job.plan.micro_batch * job.dp))}"


def _of_samples(job: Job, value: int) -> str:
    name = {"axolotl": "micro_batch_size", "torchtune": "batch_size"}.get(job.runtime.tool or "", "per_device_train_batch_size")
    return f"{name}: {value} {_accumulation(job)}"


_FACTORY_OFFLOAD = "deepspeed: examples/deepspeed/ds_z{}_offload_config.json"

_OF_JOBS: dict[str, dict[str, Writer]] = {
    "accumulates": {"plan.micro_batch": _of_samples, "plan.global_batch": lambda job, _: _accumulation(job)},
    "llama-factory": {
        "plan.offload.optimizer": lambda job, value: (
            _FACTORY_OFFLOAD.format(3 if job.plan.sharding == "zero3" else 2) if value == "host" else None
        ),
        "plan.offload.parameters": lambda _, value: _FACTORY_OFFLOAD.format(3) if value == "host" else None,
    },
    "ms-swift": {
        "plan.offload.optimizer": lambda job, value: (
            f"--deepspeed zero{3 if job.plan.sharding == 'zero3' else 2}_offload" if value == "host" else None
        ),
        "plan.offload.parameters": lambda _, value: "--deepspeed zero3_offload" if value == "host" else None,
    },
    "megatron": {
        "plan.vpp": _megatron_vpp,
        "plan.recompute_layers": _megatron_recompute_layers,
        "plan.recompute_modules": _modules("--recompute-modules ", " "),
        "plan.stages": _megatron_stages,
        "plan.offload.optimizer_fraction": lambda _, value: f"--optimizer-offload-fraction {value}" if value < 1.0 else None,
        "plan.offload.activations": lambda _, value: f"--cpu-offloading --cpu-offloading-num-layers {value}" if value else None,
    },
    "torchtitan": {
        "plan.micro_batch": lambda job, value: f"--training.local_batch_size {value}" if job.plan.pp == 1 else None,
        "plan.vpp": lambda job, value: (
            f"--parallelism.pipeline_parallel_layers_per_stage {-(-job.model.layers // (job.plan.pp * value))}"
        ),
    },
    "fsdp": {"runtime.reshard_after_forward": lambda _, value: f"reshard_after_forward={value}"},
    "bridge": {
        "plan.recompute_layers": lambda job, value: (
            f"model.recompute_method=block model.recompute_num_layers={value}" if job.plan.recompute == "full" else None
        ),
        "plan.recompute_modules": _modules("model.recompute_modules=[", ",", "]"),
    },
}
"""Part of flags.toml -> field -> how to write it, where that depends on more than the value."""


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
