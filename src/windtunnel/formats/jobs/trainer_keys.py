"""Keys that Accelerate, the Trainer and Axolotl share: numbers, switches, optimizers, adapters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.keys import Keys
from windtunnel.spec.model import Lora

_OPTIMIZERS = {"adam": "adam", "adafactor": "adafactor", "sgd": "sgd", "lamb": "lamb", "muon": "muon"}
_TARGETS = {
    "q_proj": "linear_qkv",
    "k_proj": "linear_qkv",
    "v_proj": "linear_qkv",
    "qkv_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "gate_proj": "linear_fc1",
    "up_proj": "linear_fc1",
    "gate_up_proj": "linear_fc1",
    "down_proj": "linear_fc2",
}


def first_count(keys: Keys, paths: Sequence[str]) -> int | None:
    """The first whole number of 1 or more at one of the paths; numbers in quotes count. SpecError for anything else."""
    values = [(path, keys.get(path)) for path in paths]
    for path, value in values:
        if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
            value = int(value)
        if value in (None, "auto", 0):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
            raise SpecError(path, value, "a whole number of 1 or more")
        return value
    return None


def is_on(keys: Keys, path: str) -> bool:
    """Whether a switch is on; text such as "true" counts."""
    value = keys.get(path)
    return value is True or isinstance(value, str) and value.lower() in ("true", "yes", "unsloth", "offload")


def named_stage(name: str) -> int | None:
    """The stage in a file name such as `zero3_bf16.json`."""
    match = re.search(r"(?:zero|stage|z)[_-]?([0-3])", name.rpartition("/")[2].lower())
    return int(match[1]) if match else None


def optimizer_of(keys: Keys, assumed: list[str]) -> dict[str, Any]:
    """Fields of the runtime for names such as adamw_torch_fused or adamw_bnb_8bit."""
    named = keys.get("optim") or keys.get("optimizer") or "adamw"
    name = str(named).lower()
    kind = next((ours for word, ours in _OPTIMIZERS.items() if word in name), None)
    if kind is None:
        kind = "adam"
        assumed.append(f"optimizer adam in place of {name[:60]}")
    fields: dict[str, Any] = {"optimizer": kind}
    if "8bit" in name:
        fields |= {"exp_avg_dtype": "int8", "exp_avg_sq_dtype": "int8"}
    return fields


def lora_of(keys: Keys, assumed: list[str]) -> Lora | None:
    """Adapters of peft: rank and target modules; None where everything is trained."""
    kind = keys.get("adapter") or keys.get("finetuning_type")
    peft = is_on(keys, "use_peft")
    rank = first_count(keys, ("lora_r", "lora_rank"))
    listed, everything = keys.get("lora_target_modules") or keys.get("lora_target"), is_on(keys, "lora_target_linear")
    if str(kind).lower() not in ("lora", "qlora", "dora") and not (peft and rank):
        return None
    if str(kind).lower() == "qlora" or is_on(keys, "load_in_4bit") or is_on(keys, "load_in_8bit"):
        assumed.append("frozen weights in 16 bits: their quantisation (QLoRA) is not modelled")
    words = listed.split(",") if isinstance(listed, str) else listed if isinstance(listed, list) else []
    targets = {_TARGETS[word.strip()] for word in map(str, words) if word.strip() in _TARGETS}
    if everything or any(str(word) in ("all", "all-linear") for word in words):
        targets = set(_TARGETS.values())
    if not targets:
        targets = {"linear_qkv"}
        assumed.append("adapters on the query, key and value projections (no target module is named)")
    return Lora.model_validate({"rank": rank or 8, "targets": sorted(targets)})
