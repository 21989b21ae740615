"""Commands that start a trainer, as the table that its configuration file would be.

`llamafactory-cli train`, `swift sft`, `trl sft`, `axolotl train`, and a script with the Trainer's flags under torchrun, deepspeed,
accelerate or python take flags whose names are the keys of their YAML files; verl takes overrides such as `actor_rollout_ref.…=8`
(`verl_table`). What the launcher says of processes becomes `num_processes`, Accelerate's own key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.formats.jobs.scripts.verl_table import table_of_overrides
from windtunnel.formats.jobs.several import PARTS
from windtunnel.spec.loading.files import SUFFIXES, read_table

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_OF_TRAINERS = {"per_device_train_batch_size", "per_gpu_train_batch_size"}
_OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w]*(?:\.[\w@]+)+=.*", re.DOTALL)
_YAML_OVERRIDE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_COUNTS = {
    "nproc_per_node": "per_node",
    "nproc-per-node": "per_node",
    "num_gpus": "per_node",
    "nnodes": "nodes",
    "num_nodes": "nodes",
    "num_processes": "processes",
}
"""Flags of torchrun, deepspeed and accelerate that say how many processes there are."""
_ENVIRONMENT = {"NPROC_PER_NODE": "per_node", "NNODES": "nodes", "WORLD_SIZE": "nodes"}
"""Variables that llamafactory-cli and swift hand to torchrun."""
_TOOLS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "llamafactory-cli": (("train",), {"finetuning_type": "lora"}),
    "lmf": (("train",), {"finetuning_type": "lora"}),
    "swift": (("sft", "pt"), {"tuner_type": "lora"}),
    "trl": (("sft",), {"max_length": 1024}),
    "axolotl": (("train",), {}),
}
"""Programs with the words that make them train, and a default of theirs by which the reader of the table knows them."""


def table_of_commands(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path | None
) -> Mapping[str, Any] | None:
    """The table of the last command that starts a trainer; None where none does. Files that it names are read beside `folder`."""
    for command in reversed(commands):
        words = list(command)
        if (overrides := _verl(words)) is not None:
            return table_of_overrides(overrides)
        if (table := _table(words, environment, folder)) is not None:
            return table
    return None


def _verl(words: list[str]) -> list[str] | None:
    """Overrides of a command that starts a trainer of verl."""
    if not any(re.fullmatch(r"verl\.trainer\.\w+", word) for word in words):
        return None
    return [word for word in words if _OVERRIDE.fullmatch(word)]


def _table(words: list[str], environment: Mapping[str, str], folder: Path | None) -> Mapping[str, Any] | None:
    counts: dict[str, int] = {}
    for name, what in _ENVIRONMENT.items():
        _count(counts, what, environment.get(name, ""))
    started = _program(words)
    if started is None:
        return None
    start, defaults = started
    before, after = words[: start - 1], words[start:]
    launcher = {name: value[0] if isinstance(value, list) else value for name, value in _flags_of(before).items()}
    parts = []
    for name, value in launcher.items():
        if name in _COUNTS:
            _count(counts, _COUNTS[name], value)
    for name in ("config_file", "config"):
        if (opened := _open(launcher.get(name), folder)) is not None:
            parts.append(opened)
    table = _arguments(after, folder)
    if not defaults and not _OF_TRAINERS & table.keys() and not parts and "base_model" not in table:
        return None
    table = {**defaults, **_of_accelerate(launcher), **table}
    if "processes" in counts or "per_node" in counts:
        table.setdefault("num_processes", counts.get("processes") or counts["per_node"] * counts.get("nodes", 1))
    return {PARTS: [*parts, table]} if parts else table


def _program(words: list[str]) -> tuple[int, dict[str, Any]] | None:
    """Where the trainer's own words begin, and by which default its reader knows it; None for another command."""
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in _TOOLS and at + 1 < len(words) and words[at + 1] in _TOOLS[name][0]:
            return at + 2, dict(_TOOLS[name][1])
        if (
            word == "-m"
            and at + 1 < len(words)
            and words[at + 1] in ("axolotl.cli.train", "trl.scripts.sft", "llamafactory.launcher")
        ):
            tool = words[at + 1].partition(".")[0].replace("llamafactory", "llamafactory-cli")
            return at + 2, dict(_TOOLS[tool][1])
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
    table |= {name: _value(text) for word in words if _YAML_OVERRIDE.fullmatch(word) for name, _, text in (word.partition("="),)}
    return table


def _flags_of(words: Sequence[str]) -> dict[str, Any]:
    """Values by flag, with the name of its key: `--per-device-train-batch-size 2` and `--flag` alone, which is true."""
    table: dict[str, Any] = {}
    name = ""
    for word in words:
        head, equals, value = word.partition("=")
        if _FLAG.fullmatch(head):
            name = head.lstrip("-").replace("-", "_")
            table[name] = _value(value) if equals else True
        elif name:
            told = table[name]
            table[name] = _value(word) if told is True else [*(told if isinstance(told, list) else [told]), _value(word)]
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


def _count(counts: dict[str, int], what: str, value: object) -> None:
    if str(value).isdecimal() and int(str(value)) > 0:
        counts[what] = int(str(value))


def _value(text: str) -> Any:
    """A number or a truth where a text is one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
