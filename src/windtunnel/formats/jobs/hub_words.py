"""Words of names on a hub: what they say of a model's weights and tuning, and how a name is cut into them."""

from __future__ import annotations

import re
from collections.abc import Sequence

OWNERS = (
    r"meta|nvidia|google|microsoft|mistralai|openai|ibm|c4ai|unsloth|tiiuae|facebook|huggingface|zai|thudm|"
    r"nousresearch|allenai|tencent|baidu|bytedance|lgai"
)
"""First words that are an owner's, as in Meta-Llama-3-8B."""
TUNED = (
    r"instruct|inst|chat|base|it|pt|sft|dpo|ppo|grpo|rlhf|rlvr|kto|orpo|simpo|rl|zero|thinking|think|preview|"
    r"reasoning|abliterated|uncensored|heretic|finetune|finetuned|tuned|ft|lora|qlora|merged|final|latest|alpha|beta|"
    r"release|mixture|dpop|stage1|stage2|pretrain|pretrained|deduped|intermediate|step"
)
"""Words of what was trained after the weights were made."""
TIMES = r"\d{4}|\d{6}|\d{8}|\d{2}\.\d{4}|v\d+(\.\d+)*|\d+[kt]|1m|step\d+|\d+t"
"""Dates, versions of a tuning, lengths of a context, tokens of training."""

_GGUF = r"gguf|ggml|i?q\d(k|0|1|km|ks|kl|kxl|xxs|xs|s|m|l|nl)*|imatrix|i1|imat"
_PACKED = (
    ("nf4", r"bnb|nf4|bitsandbytes|qlora4"),
    ("gguf", _GGUF),
    ("fp8", r"fp8|f8|w8a8fp8|mxfp8"),
    ("fp4", r"nvfp4|mxfp4|fp4"),
    ("int8", r"int8|8bit|w8a16|w8a8|q8"),
    ("int4", r"awq|gptq|4bit|int4|w4a16|g128|gs128|128g|32g|hqq|aqlm|autoround|exl2|exl3|eetq|int3|3bit|2bit|5bit|6bit|dwq|marlin"),
    ("16", r"bf16|fp16|f16|fp32|f32|mlx|unsloth|dynamic|quantized|quantised|qat|onnx|safetensors|sharded|hf|dequantized|optimized"
     r"|block|\d\.\d+bpw|ptq|torchao|quant|megatron|torchdist|distckpt|mcore"),
)  # fmt: skip
_FOLDERS = (
    r"checkpoint-?\d+|global_?step_?\d+|iter_?\d+|step_?\d+|epoch_?\d+|[0-9a-f]{32,64}"
    r"|snapshots|main|hf|huggingface|final|latest|actor"
)


def is_folder(part: str) -> bool:
    """Whether a part of a path names a step or a snapshot, and no model."""
    return re.fullmatch(_FOLDERS, part.lower()) is not None


def packed_as(name: str) -> str:
    """How the words of a name say that weights are packed: nf4, gguf, fp8, fp4, int8, int4; "16" for other words of a format, ""
    without any. Of bits alone (4bit) bitsandbytes' is meant only beside `bnb`."""
    found = {form for word in words_of(name) for form, words in _PACKED if re.fullmatch(words, word)}
    if "nf4" in found and "8bit" in words_of(name):
        return "int8"
    return next((form for form in ("nf4", "gguf", "fp8", "fp4", "int8", "int4", "16") if form in found), "")


def without_owner(words: list[str]) -> list[str]:
    """The words without an owner's name before them, as in Meta-Llama-3-8B, or a family's twice, as in Qwen_Qwen3-8B-GGUF."""
    twice = len(words) > 1 and len(words[0]) > 2 and words[1].startswith(words[0])
    return words[1:] if twice or len(words) > 1 and re.fullmatch(OWNERS, words[0]) else words


def words_of(name: str) -> list[str]:
    """The words of a name in small letters; a point between digits stays, and beside dashes an underscore there is one."""
    text = re.sub(r"\.(gguf|safetensors|bin|nemo|pt|yaml|yml)$", "", name.lower())
    text = re.sub(r"(\d)[-_ ]bits?(?![a-z])", r"\1bit", text)
    text = re.sub(r"(?<=[-_.])(i?q\d)_(\w+?)(?=$|[-.])", lambda found: found[1] + found[2].replace("_", ""), text)
    if "-" in text:
        text = re.sub(r"(?<=\d)_(?=\d)", ".", text)
    text = re.sub(r"(?<![\d.])(0[1-9]|1[0-2])-(20\d\d)(?!\d)", r"\1.\2", text)
    text = re.sub(
        r"(?<![\d.])(20\d\d)-(0[1-9]|1[0-2])(?:-(\d\d))?(?!\d)", lambda found: "".join(filter(None, found.groups())), text
    )
    return [word for word in re.split(r"[-_ :@+]+|(?<!\d)\.|\.(?!\d)", text) if word]


def canonical(words: Sequence[str]) -> str:
    """One spelling of a name: numbers, sizes and runs of letters with dashes between, as "qwen-2.5-7b" and "qwen-3-30b-a-3b"."""
    pieces: list[str] = []
    for word in words:
        for piece in re.findall(r"\d+(?:\.\d+)?[bm](?![a-z\d])|\d+(?:\.\d+)?|[a-z]+", word):
            if pieces and pieces[-1].isalpha() and piece.isalpha():
                pieces[-1] += piece
            else:
                pieces.append(piece)
    return "-".join(pieces)


def spellings(key: str) -> set[str]:
    """A canonical name as identifiers have it: versions without their point ("qwen-25-7b"), points as further dashes."""
    versions = re.sub(r"(\d)\.(\d+)(?![\d.]*[bm](?:-|$))", r"\1\2", key)
    return {versions, key.replace(".", "-"), versions.replace(".", "-")} - {key}
