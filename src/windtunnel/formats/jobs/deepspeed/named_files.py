"""The DeepSpeed file that a configuration of Accelerate, the Trainer or Axolotl names, opened where it lies beside that one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from windtunnel.formats.jobs.deepspeed.configuration import offload_of, sharding_fields, zero_plus_of
from windtunnel.formats.jobs.keys import Keys
from windtunnel.spec.loading.files import read_table

NAMED = ("deepspeed", "deepspeed_config.deepspeed_config_file")
"""Where the name stands: the Trainer's and Axolotl's key, and Accelerate's."""
_UPWARDS = 4
"""Folders that are tried: a name is relative to where the launcher runs, often the root of a repository."""


def open_named_files(table: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The table with the content of the file as `deepspeed`; the same table where none is named or it does not lie there.

    FileError for a file that lies there and cannot be read.
    """
    name = next((text for path in NAMED if isinstance(text := Keys(table).get(path), str)), None)
    if name is None or not name.endswith(".json"):
        return table
    path = _find_file(name, folder)
    return table if path is None else {**table, "deepspeed": read_table(path)}


def _find_file(name: str, folder: Path) -> Path | None:
    relative = PurePosixPath(name)
    above = [folder, *list(folder.resolve().parents)[: _UPWARDS - 1]]
    tried = [*(base / relative for base in above if not relative.is_absolute()), folder / relative.name]
    try:
        return next((path for path in tried if path.is_file()), None)
    except (OSError, ValueError):
        return None


def fields_of(file: Mapping[str, Any], assumed: list[str]) -> dict[str, Any]:
    """Fields of a plan that the file states: sharding, offload, ZeRO++."""
    keys = Keys(file)
    stage = keys.whole_number("zero_optimization.stage") or 0
    more = {key: value for key, value in zero_plus_of(keys, stage).items() if value}
    return {"offload": offload_of(keys, stage, assumed), **more}


def precision_of(file: Mapping[str, Any]) -> str:
    """bf16 or fp16 where the file enables it, else nothing; "auto" leaves it to the arguments."""
    keys = Keys(file)
    return next((name for name in ("bf16", "fp16") if keys.get(f"{name}.enabled") is True), "")


def left_in(file: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of the file that nothing here reads; those that say "auto" say nothing."""
    keys = Keys(file)
    read = ("zero_optimization.stage", "bf16", "fp16", "gradient_accumulation_steps", "train_micro_batch_size_per_gpu")
    for path in (*read, "train_batch_size"):
        keys.get(path)
    zero_plus_of(keys, 0)
    offload_of(keys, 3, [])
    sharding_fields(keys, "bf16", "bf16", 1)
    return tuple(f"deepspeed.{path}" for path in keys.left_over() if keys.get(path) != "auto")
