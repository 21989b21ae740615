"""Commands that start a trainer, as the table that its configuration file would be.

`llamafactory-cli train`, `swift sft`, `trl sft`, `axolotl train`, and a script with the Trainer's flags under torchrun, deepspeed,
accelerate or python take flags whose names are the keys of their YAML files; verl takes overrides such as `actor_rollout_ref.…=8`
(`verl_table`). What the launcher says of processes becomes `num_processes`, Accelerate's own key.

Overrides of verl's trainers as the table of the job that its update of the actor is.

`actor_rollout_ref.actor.ppo_mini_batch_size=16` and the like (verl/trainer/config/ppo_trainer.yaml, verl/workers/config/). A step
of reinforcement learning has phases before the update (rollout, log-probabilities, advantages); they are no part of this job.

OpenRLHF's flags as the table of the job that its update of the actor is (openrlhf/cli/train_ppo_ray.py).

Flags have sections since 0.10 (`--rollout.batch_size`); before, they had none (`--rollout_batch_size`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.launched import Launched, launcher_of
from windtunnel.formats.jobs.scripts.said import ENTRY, Said, is_skyrl, of_rl_trainer, said_of_flags, without_none
from windtunnel.formats.jobs.scripts.script_call import named_file
from windtunnel.formats.jobs.several import PARTS
from windtunnel.formats.jobs.tool_files import plain_value, table_of_command
from windtunnel.formats.jobs.trainer_keys import ABSENT, of_named_accelerate
from windtunnel.spec.loading.files import SUFFIXES, read_table
from windtunnel.spec.loading.resolve import merge

MODULES = ("openrlhf.cli.train_ppo_ray", "openrlhf.cli.train_ppo")

BATCH, SAMPLES = ("train.batch_size", "train_batch_size"), ("rollout.n_samples_per_prompt", "n_samples_per_prompt")
MICRO = ("train.micro_batch_size", "micro_train_batch_size")
RING, TP = ("ds.ring_attn_size", "ring_attn_size"), ("ds.tensor_parallel_size", "ds_tensor_parallel_size")
PACKED = ("train.max_tokens_per_gpu", "train_max_tokens_per_gpu")
DYNAMIC = ("train.dynamic_batch_enable", "use_dynamic_batch")


def starts_openrlhf(words: Sequence[str]) -> bool:
    """Whether a command starts OpenRLHF's RL trainer."""
    return any(word in MODULES for word in words)


def actor_gpus(said: Said) -> int:
    """GPUs of the actor."""
    nodes = said.count("actor.num_nodes", "actor_num_nodes") or 1
    return nodes * (said.count("actor.num_gpus_per_node", "actor_num_gpus_per_node") or 8)


def table_of_update(words: Sequence[str]) -> Mapping[str, Any]:
    """The Trainer's keys for the update of the actor."""
    said = said_of_flags(words)
    gpus, micro, stage = actor_gpus(said), said.count(*MICRO) or 1, said.text("ds.zero_stage", "zero_stage") or "2"
    tp, ring = said.count(*TP) or 1, said.count(*RING) or 1
    replicas = max(1, gpus // (tp * ring))
    table = without_none(
        rl_update="OpenRLHF", model_name_or_path=said.text("actor.model_name_or_path", "pretrain"), num_processes=gpus,
        max_length=said.count("data.max_len", "max_len") or 2048, per_device_train_batch_size=micro,
        gradient_accumulation_steps=max(1, (said.count(*BATCH) or 128) // (replicas * micro)),
        gradient_checkpointing=said.is_on("actor.gradient_checkpointing_enable", "gradient_checkpointing"),
        zero_stage=int(stage) if stage.isdecimal() else 2, bf16=True, tensor_parallel_size=tp if tp > 1 else None,
        context_parallel_size=ring if ring > 1 else None,
    )  # fmt: skip
    if said.is_on("ds.adam_offload", "adam_offload"):
        table["deepspeed_config"] = {"offload_optimizer_device": "cpu", "zero_stage": table.pop("zero_stage")}
    if rank := said.count("ds.lora.rank", "lora_rank"):
        table |= {"use_peft": True, "lora_r": rank, "lora_target_modules": "all-linear"}
    return table


VERL = re.compile(r"verl\.trainer\.\w+|(?:verl|recipe)\.[\w.]*(?:main_\w+|\w+_main)")
"""Modules that start a trainer of verl."""

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_OF_TRAINERS = {"per_device_train_batch_size", "per_gpu_train_batch_size"}
_OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w]*(?:\.[\w@]+)+=.*", re.DOTALL)
_YAML_OVERRIDE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_TOOLS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "llamafactory-cli": (("train",), {"finetuning_type": "lora"}),
    "lmf": (("train",), {"finetuning_type": "lora"}),
    "swift": (("sft", "pt", "rlhf"), {"tuner_type": "lora"}),
    "trl": (("sft", "grpo"), {"max_length": 1024}),
    "axolotl": (("train",), {}),
    "skyrl": ((), {}),
}
"""Programs with the words that make them train, and a default of theirs by which the reader of the table knows them."""
_MODULES = {
    "llamafactory-cli": r"(?:^|\.)llamafactory(?:\.launcher|\.cli)?$",
    "swift": r"(?:^|\.)swift\.cli\.(?:sft|pt|rlhf|main)$",
    "trl": r"(?:^|\.)trl\.(?:scripts\.(?:sft|grpo)|cli)$",
    "axolotl": r"(?:^|\.)axolotl\.cli(?:\.train|\.main)?$",
    "skyrl": r"(?:^|\.)skyrl(?:_train|\.train)\.entrypoints\.\w+$|^examples\.(?:\w+\.)*main_\w+$|\.entrypoints\.main_\w+$",
}
"""Modules of the same programs, by their path with points: `-m llamafactory.launcher`, `swift/cli/sft.py` under any launcher."""


_TITAN = re.compile(r"(?:^|/)torchtitan[./](?:[\w./]+[./])?train(?:\.py)?$")


def table_of_commands(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path | None
) -> Mapping[str, Any] | None:
    """The table of the last command that starts a trainer; None where none does. Files that it names are read beside `folder`."""
    shared = environment
    for command in reversed(commands):
        words, environment = list(command), {**shared, **getattr(command, "own", {})}
        if (overrides := _verl(words)) is not None:
            return table_of_overrides(overrides, launcher_of(words, environment, folder))
        if starts_openrlhf(words):
            return table_of_update(words)
        readers = (table_of_command, _titan, _table)
        if (table := next((found for one in readers if (found := one(words, environment, folder))), None)) is not None:
            return table
    return None


def _verl(words: list[str]) -> list[str] | None:
    """Overrides of a command that starts a trainer of verl."""
    at = next((at for at, word in enumerate(words) if VERL.fullmatch(word)), None)
    if at is None:
        return None
    return [word for word in words[at + 1 :] if _OVERRIDE.fullmatch(word) or _YAML_OVERRIDE.fullmatch(word)]


def _titan(words: list[str], environment: Mapping[str, str], folder: Path | None) -> dict[str, Any] | None:
    """The configuration of a command that starts torchtitan, `-m torchtitan.train --job.config_file FILE --training.steps 10`; None
    for another command. SpecError for a file that does not lie at or above `folder`."""
    start = next((at for at, word in enumerate(words) if _TITAN.search(word)), None)
    if start is None:
        return None
    fields = dict(_field_pairs(words[start + 1 :]))
    if "module" in fields:
        allowed = f"its file: torchtitan/models/{fields['module']}/config_registry.py:{fields.get('config', 'CONFIG')}"
        raise SpecError("--module", fields["module"], allowed, "A configuration that is Python is named as FILE.py:FUNCTION.")
    name = fields.pop("job.config_file", None)
    file = named_file(str(name), folder / "script") if name is not None and folder is not None else None
    if name is not None and file is None:
        raise SpecError("--job.config_file", name, "a file beside the script", "Or give that file in place of the script.")
    table: dict[str, Any] = dict(read_table(file)) if file is not None else {}
    for path, value in fields.items():
        section, _, field = path.rpartition(".")
        table[section] = {**table.get(section, {}), field: value} if section else value
    return {**launcher_of(words[:start], environment, folder).as_table(), "training": {}, "parallelism": {}, **table}


def _field_pairs(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(section.field, value) of `--section.field value`, `--section.field=value` and `--section.switch`."""
    for at, word in enumerate(words):
        if word.startswith("--"):
            head, equals, value = word[2:].partition("=")
            alone = not equals and (at + 1 == len(words) or words[at + 1].startswith("--"))
            said = "true" if alone else value if equals else words[at + 1]
            section, dot, field = head.replace("-", "_").rpartition(".")
            off = alone and field.startswith("no_")
            yield f"{section}{dot}{field.removeprefix('no_') if off else field}", False if off else plain_value(said)


def _table(words: list[str], environment: Mapping[str, str], folder: Path | None) -> Mapping[str, Any] | None:
    started = _program(words)
    if started is None:
        return None
    start, defaults = started
    knows = bool(defaults)
    before, after = words[: start - 1], words[start:]
    launcher = {name: value[0] if isinstance(value, list) else value for name, value in _flags_of(before).items()}
    parts = []
    for name in ("config_file", "config"):
        if (opened := _open(launcher.get(name), folder)) is not None:
            parts.append(opened)
        elif name == "config_file" and isinstance(launcher.get(name), str):
            defaults = {ABSENT: launcher[name], **of_named_accelerate(launcher[name]), **defaults}
    if (configured := _of_rl(after, folder)) is not None:
        return {**configured, ENTRY: words[start - 1]} if is_skyrl(configured) else configured
    table = _arguments(after, folder)
    if not knows and not _OF_TRAINERS & table.keys() and not parts and "base_model" not in table:
        return None
    table = {**defaults, **_of_accelerate(launcher), **table}
    counts = launcher_of(before, environment, folder).as_table()
    if "num_processes" not in table:
        table |= counts
    return {PARTS: [*parts, table]} if parts else table


def _of_rl(words: Sequence[str], folder: Path | None) -> Mapping[str, Any] | None:
    """A configuration of AReaL, ROLL, SkyRL or NeMo RL with what the command changes of it (`actor.path=…`); None for another.

    It is the file of `--config`, or of `--config_name` in the folder `--config_path` (Hydra), or it stands in the command.
    """
    flags = {name: value[0] if isinstance(value, list) else value for name, value in _flags_of(words).items()}
    named = flags.get("config_path", ".")
    files = [str(flags.get("config", ""))]
    if (name := flags.get("config_name")) is not None:
        files = [f"{head}/{name}.yaml" for head in (str(named), f"examples/{named}", ".")]
    opened = next((opened for file in files if (opened := _open(file, folder)) is not None), dict[str, Any]())
    for word in words:
        path, equals, value = word.lstrip("+").partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*(?:\.\w+)*", path):
            inner: Any = plain_value(value.strip("'\""))
            for part in reversed(path.split(".")):
                inner = {part: inner}
            opened = merge(opened, inner)
    return opened if of_rl_trainer(opened) else None


def _program(words: list[str]) -> tuple[int, dict[str, Any]] | None:
    """Where the trainer's own words begin, and by which default its reader knows it; None for another command."""
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in _TOOLS and at + 1 < len(words) and words[at + 1] in _TOOLS[name][0]:
            return at + 2, dict(_TOOLS[name][1])
        module = re.sub(r"\.py$", "", word).replace("/", ".")
        tool = next((tool for tool, path in _MODULES.items() if re.search(path, module)), None)
        if tool is not None and (word.endswith(".py") or words[at - 1] in ("-m", "--module")):
            behind = at + 2 if at + 1 < len(words) and words[at + 1] in _TOOLS[tool][0] else at + 1
            return behind, dict(_TOOLS[tool][1])
        if word.endswith(".py") and not word.startswith("-"):
            return at + 1, {}
    return None


def _arguments(words: Sequence[str], folder: Path | None) -> dict[str, Any]:
    """Flags and `key=value`s of a trainer, over the file that it is given first."""
    table: dict[str, Any] = {}
    if words and not _FLAG.fullmatch(words[0]) and (opened := _open(words[0], folder)) is not None:
        table |= opened
    table |= _flags_of(words)
    if (opened := _open(table.get("config"), folder)) is not None:
        table = {**opened, **{name: value for name, value in table.items() if name != "config"}}
    table |= {
        name: plain_value(text) for word in words if _YAML_OVERRIDE.fullmatch(word) for name, _, text in (word.partition("="),)
    }
    return table


def _flags_of(words: Sequence[str]) -> dict[str, Any]:
    """Values by flag, with the name of its key: `--per-device-train-batch-size 2` and `--flag` alone, which is true."""
    table: dict[str, Any] = {}
    name = ""
    for word in words:
        head, equals, value = word.partition("=")
        if _FLAG.fullmatch(head):
            name = head.lstrip("-").replace("-", "_")
            table[name] = plain_value(value) if equals else True
        elif name:
            told = table[name]
            table[name] = plain_value(word) if told is True else [*(told if isinstance(told, list) else [told]), plain_value(word)]
    return table


def _of_accelerate(launcher: Mapping[str, Any]) -> dict[str, Any]:
    """What `accelerate launch` is told by flags, as its file has it."""
    table = {name: launcher[name] for name in ("mixed_precision",) if name in launcher}
    if "use_fsdp" in launcher:
        table["distributed_type"] = "FSDP"
        table["fsdp_config"] = {name: value for name, value in launcher.items() if name.startswith("fsdp_")}
    if "use_deepspeed" in launcher or "zero_stage" in launcher:
        table["distributed_type"] = "DEEPSPEED"
        keys = ("zero_stage", "offload_optimizer_device", "offload_param_device", "deepspeed_config_file")
        table["deepspeed_config"] = {name: launcher[name] for name in keys if name in launcher}
    return table


def _open(name: object, folder: Path | None) -> dict[str, Any] | None:
    """The table of a file beside the script, or above it; None where there is none."""
    if folder is None or not isinstance(name, str) or Path(name).suffix.lower() not in SUFFIXES:
        return None
    for base in (folder, *list(folder.resolve().parents)[:3]):
        if (base / name).is_file():
            return dict(read_table(base / name))
    return None


_ACTOR = "actor_rollout_ref.actor."
_NO_COST = (
    "algorithm.", "actor_rollout_ref.rollout.", "actor_rollout_ref.ref.", "critic.", "reward_model.", "trainer.", "data.",
)  # fmt: skip
"""Sections about other phases than the actor's update, and about data and reports."""
_DATA = (
    "data.train_files", "data.val_files", "data.prompt_key", "data.response_key", "data.prompt_dict_keys", "data.multiturn.enable",
    "data.response_dict_keys", "trainer.total_epochs", "trainer.project_name", "trainer.experiment_name", "trainer.logger",
    "trainer.default_local_dir", "trainer.save_freq", "trainer.test_freq", "optim.lr", "use_remove_padding",
)  # fmt: skip
_DEGREES = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size",
)  # fmt: skip


def table_of_overrides(words: Sequence[str], launcher: Launched | None = None) -> Mapping[str, Any]:
    """The Trainer's keys for overrides such as `trainer.nnodes=2`, or Megatron-LM's flags where the actor is Megatron's; a key that
    is not understood stays as it is. `launcher`: what torchrun starts, which is how the fine-tuning trainer has its processes."""
    said = {}
    for word in words:
        name, _, value = word.lstrip("+").partition("=")
        said[name] = value.strip("'\"")
    read: set[str] = set()

    def get(*names: str) -> str | None:
        found = None
        for name in names:
            if name in said:
                read.add(name)
                found = said[name] if found is None else found
        return found

    def on(*names: str) -> bool:
        return str(get(*names)).lower() == "true"

    table: dict[str, Any] = {}
    counts = _counts_of(get("trainer.n_gpus_per_node"), get("trainer.nnodes"), launcher or Launched())
    gpus = counts.total
    tuned = not any(name.startswith("actor_rollout_ref.") for name in said)  # fsdp_sft_trainer
    table["verl" if tuned else "rl_update"] = "verl"
    if tuned and on("use_remove_padding", "model.use_remove_padding"):
        table["use_remove_padding"] = True
    cp = _parse_count(get(f"{_ACTOR}ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size")) or 1
    table["model_name_or_path"] = get("actor_rollout_ref.model.path", "model.partial_pretrain", "model.path")
    table |= counts.as_table()
    prompt, response = _parse_count(get("data.max_prompt_length")), _parse_count(get("data.max_response_length"))
    table["max_length"] = _parse_count(get("data.max_length")) or ((prompt or 0) + (response or 0)) or None
    micro = _parse_count(get(f"{_ACTOR}ppo_micro_batch_size_per_gpu", "data.micro_batch_size_per_gpu")) or 1
    table["per_device_train_batch_size"] = micro
    # A mini batch counts prompts; each has `rollout.n` responses, and each of these is a sequence of the update.
    mini = _parse_count(get(f"{_ACTOR}ppo_mini_batch_size", "data.train_batch_size"))
    responses = _parse_count(get("actor_rollout_ref.rollout.n")) or 1
    if mini:
        table["rl_batch"] = mini * responses
    table["sequence_parallel_size"] = cp if cp > 1 else None
    on_megatron = any(name.startswith(f"{_ACTOR}megatron.") for name in said)
    if on_megatron or get(f"{_ACTOR}strategy") == "megatron":
        return _megatron_table(said, table, mini * responses if mini else None, gpus)
    read |= {name for name in said if name in _DATA or not tuned and name.startswith(_NO_COST)}
    checkpoints = get("actor_rollout_ref.model.enable_gradient_checkpointing", "model.enable_gradient_checkpointing")
    if checkpoints is not None:
        table["gradient_checkpointing"] = checkpoints.lower() == "true"
    offloads = on("model.fsdp_config.cpu_offload", f"{_ACTOR}fsdp_config.offload_policy")
    on(f"{_ACTOR}fsdp_config.param_offload")  # between phases of a step alone (verl/workers/fsdp_workers.py)
    table["fsdp_config"] = {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": offloads}
    on(f"{_ACTOR}fsdp_config.optimizer_offload")
    table["distributed_type"], table["bf16"] = "FSDP", True
    if not tuned:  # verl/utils/torch_functional.py: log-probabilities by flash-attn's cross entropy, of 16-bit logits
        table["flash_attn_cross_entropy"] = True
    lora = _parse_count(get("actor_rollout_ref.model.lora_rank", "model.lora_rank"))
    if lora:
        targets = get("actor_rollout_ref.model.target_modules") or "all-linear"
        table |= {"use_peft": True, "lora_r": lora, "lora_target_modules": targets}
    left = {name: value for name, value in said.items() if name not in read}
    return {key: value for key, value in table.items() if value is not None} | left


def _megatron_table(said: Mapping[str, str], table: Mapping[str, Any], batch: int | None, gpus: int | None) -> Mapping[str, Any]:
    """Megatron-LM's flags of an actor of verl's Megatron workers (verl/workers/config/engine.py): bf16, a distributed optimizer,
    and sequence parallelism with tensor parallelism."""
    head = f"{_ACTOR}megatron."
    flags: dict[str, Any] = {"--rl-update": True, "--bf16": True, "--use-distributed-optimizer": True}
    flags["--hf-checkpoint"] = table["model_name_or_path"]
    flags |= {"--seq-length": table["max_length"], "--micro-batch-size": table["per_device_train_batch_size"]}
    flags |= {"--global-batch-size": batch, "--world-size": gpus}
    for name in _DEGREES:
        flags[f"--{name.replace('_', '-')}"] = said.get(head + name)
    if (_parse_count(said.get(f"{head}tensor_model_parallel_size")) or 1) > 1 and said.get(f"{head}sequence_parallel") != "False":
        flags["--sequence-parallel"] = True
    inner = f"{head}override_transformer_config."
    for name, value in said.items():
        if name.startswith(inner) and value.lower() not in ("null", "none", "false"):
            flags[f"--{name.removeprefix(inner).replace('_', '-')}"] = True if value.lower() == "true" else value.strip("[]")
    return {"MODEL_ARGS": {flag: value for flag, value in flags.items() if value is not None}}


def _parse_count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _counts_of(per_node: str | None, nodes: str | None, launcher: Launched) -> Launched:
    """GPUs of verl's trainer; `launcher` counts where it says nothing of them."""
    if per_node is None and nodes is None:
        return launcher
    said = {"trainer.n_gpus_per_node": per_node, "trainer.nnodes": nodes or "1"}
    unset = tuple(f"{name}={text}" for name, text in said.items() if text is not None and _parse_count(text) is None)
    return Launched(None, _parse_count(nodes or "1"), _parse_count(per_node), unset)
