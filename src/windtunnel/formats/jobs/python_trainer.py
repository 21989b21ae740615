"""A Python script that trains with Unsloth, TRL or transformers, as the table of keys that a configuration of it would be.

The script is parsed, and never run: what calls of known names are given as constants, or as names that were set to constants, is
taken. Defaults: unslothai/unsloth unsloth/models/loader.py and llama.py (get_peft_model: r 16, use_gradient_checkpointing
"unsloth").
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

_STARTS = re.compile(r"^[ \t]*(?:from|import)\s+(?:unsloth|trl|transformers|peft)\b", re.MULTILINE)
_LARGEST = 1 << 20
_CONFIGS = re.compile(
    r"(?:Unsloth)?(?:SFT|GRPO|DPO|ORPO|KTO|Training|Seq2SeqTraining|CPO|Reward|RLOO)(?:Config|Arguments|TrainingArguments)"
)
_SUMS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_NAMES = {
    "r": "lora_r", "rank": "lora_r", "target_modules": "lora_target_modules", "model_name": "model_name_or_path",
    "pretrained_model_name_or_path": "model_name_or_path",
}  # fmt: skip
"""Names of arguments -> keys of a configuration."""


def table_of_script(text: str) -> Mapping[str, Any] | None:
    """The keys of a script that trains; None for another one."""
    if len(text) > _LARGEST or not _STARTS.search(text):
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    known = constants_of(tree)
    table: dict[str, Any] = {}
    trains = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            trains = _take(node, known, table) or trains
    if not trains or "model_name_or_path" not in table:
        return None
    if re.search(r"\bunsloth\b", text):
        own = {"use_gradient_checkpointing": "unsloth", "attn_implementation": "flex_attention", "use_kernels": True}
        table = own | table
        if not table.pop("full_finetuning", False):
            table.setdefault("lora_r", 16)
        table.setdefault("num_processes", 1)
        table["bf16"] = table.get("fp16") is not True
    elif "lora_r" in table:
        table["use_peft"] = True
    table.setdefault("per_device_train_batch_size", 8)
    return table


def _take(call: ast.Call, known: Mapping[str, Any], table: dict[str, Any]) -> bool:
    """Puts the arguments of a call into the table; whether the call configures a training."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    owner = call.func.value.id if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) else ""
    loads = name == "from_pretrained" and ("Model" in owner or "FastLanguage" in owner)
    trains = _CONFIGS.fullmatch(name) is not None
    adapts = name == "LoraConfig" or name == "get_peft_model" and owner.startswith("Fast")
    if not (loads or trains or adapts or name in ("BitsAndBytesConfig", "SFTTrainer")):
        return False
    if loads and call.args and (first := constant_of(call.args[0], known)) is not None:
        table["model_name_or_path"] = first
    for keyword in call.keywords:
        value = constant_of(keyword.value, known)
        if keyword.arg is None or value is None or keyword.arg in ("output_dir", "train_dataset", "tokenizer"):
            continue
        if name == "SFTTrainer" and keyword.arg not in ("max_seq_length", "packing"):
            continue
        if name == "SFTTrainer":
            table.setdefault(keyword.arg, value)
        else:
            table[keyword.arg if trains else _NAMES.get(keyword.arg, keyword.arg)] = value
    return trains


def constants_of(tree: ast.AST) -> dict[str, Any]:
    """Names of a script that are set to constants, with their values."""
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(name := node.targets[0], ast.Name):
            continue
        if (value := constant_of(node.value, known)) is not None:
            known[name.id] = value
    return known


def constant_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """The value of a constant, of a name that has one, of a list of them, or of a product or sum; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.List | ast.Tuple):
        values = [constant_of(part, known) for part in node.elts]
        return None if None in values else values
    if isinstance(node, ast.Attribute):  # torch.bfloat16
        return node.attr if node.attr in ("bfloat16", "float16", "float32") else None
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        left, right = constant_of(node.left, known), constant_of(node.right, known)
        if isinstance(left, int) and isinstance(right, int) and (right or not isinstance(node.op, ast.FloorDiv)):
            return _SUMS[type(node.op)](left, right)
    return None
