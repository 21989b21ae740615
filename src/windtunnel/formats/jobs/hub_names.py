"""The catalogue's model behind names that others use: `unsloth/Llama-3.3-70B-Instruct-bnb-4bit`, `llama3_8b_pretrain_config`,
`/models/Qwen2.5-7B-Instruct`.

A name is cut into words; words of formats, of tuning, and of dates and lengths are dropped, in this order, as far as needed.
What is left must be a name of the catalogue or of `catalog/hub.toml`, number for number: sizes and versions are never dropped.

Names that are like one that is not known.

Words of names on a hub: what they say of a model's weights and tuning, and how a name is cut into them.

The size of a vocabulary from a tokenizer's name (`catalog/tokenizers.toml`); tokenizers themselves are not read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from math import log2
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.files import CATALOG
from windtunnel.spec import Model, load_model, names
from windtunnel.spec.loading.files import ROOT, read_table
from windtunnel.spec.loading.resolve import merge
from windtunnel.spec.model import Checkpoint

_RECIPE = r"_(pretrain|finetune|sft|peft|lora|dora|qlora|low|proxy|\d+gpus?|\d+k|config|seq).*$"
_NOTES = {
    "language_alone": "the language model alone: the hub's {name} has an encoder of images beside it",
    "own_indexers": "an indexer in each layer: {name} shares the keys that one picks among four layers",
}
"""What a section of `catalog/hub.toml` leaves out."""
_VISION = "-vision"
"""How entries end that have the encoder."""


@dataclass(frozen=True)
class HubName:
    """What a name means: the model, how its weights are packed ("" for 16 bits; nf4, int4, int8, fp8, gguf), what must be said
    of it, and whether the whole name is known (else its begin, which only one model has)."""

    model: Model
    packed: str
    notes: tuple[str, ...]
    whole: bool


@dataclass(frozen=True)
class _Entry:
    model: str
    fields: tuple[tuple[str, Any], ...] = ()
    note: str = ""


def catalogue_model(name: str, assumed: list[str] | None = None) -> Model | None:
    """The model that a hub's repository, a provider class or a recipe's function names; None where the catalogue has none.
    What it lacks of the named one joins `assumed`."""
    found = find_named(name)
    if found is not None and assumed is not None:
        assumed += found.notes
    return None if found is None else found.model


def find_named(name: str) -> HubName | None:
    """As `catalogue_model`, with what is known beside the model."""
    if name in names("models"):
        return HubName(load_model(name), "", (), True)
    parts = [part for part in re.split(r"[/\\]+|^models--|(?<=[a-z])--(?=[A-Z])", name.strip()) if part and not is_folder(part)]
    if not parts:
        return None
    stem, owner = parts[-1], parts[-2] if len(parts) > 1 else ""
    known, near = _read_known()
    for words, identifier in _readings(stem):
        for left in _drop_words(words):
            key = canonical(left)
            owned = f"{owner.lower()}/{key}" if owner else ""
            entry = known.get(owned) or known.get(key) or (near.get(key) if identifier else None)
            if entry is not None:
                return _make_name(entry, owner, stem, True)
    for words, _ in _readings(stem):
        for left in _drop_words(words, times=False):
            if (entry := _find_begun(canonical(left), known)) is not None:
                return _make_name(entry, owner, stem, False)
    return None


def nearest_names(name: str) -> list[str]:
    """The three names of the catalogue that are most like `name`, the most alike first."""
    known = {key: entry.model for key, entry in _read_known()[0].items()}
    wanted = canonical(next(iter(reversed(list(_drop_words(words_of(re.split(r"[/\\]", name.rstrip("/"))[-1]))))), []))
    return nearest_three(wanted, known)


def unknown_model(path: str, name: str, file: str = "--model CONFIG.JSON") -> SpecError:
    """The error of a name that is not known: the nearest ones, and how to give any other model (`file`: what to type for it)."""
    hub = re.fullmatch(r"[A-Za-z][\w.-]*/[\w.-]+", name)
    get = f"`hf download {name} config.json` and" if hub else "the config.json of any other model:"
    return SpecError(path, name, "a model of the catalogue", f"Nearest: {', '.join(nearest_names(name))}. Or {get} {file}.")


def _make_name(entry: _Entry, owner: str, stem: str, whole: bool) -> HubName:
    model = load_model(entry.model)
    if entry.fields:
        model = load_model(merge(model.model_dump(exclude_none=True, mode="json"), dict(entry.fields)))
    note = entry.note.format(name=stem)
    if note and entry.model + _VISION in names("models"):
        note += f" ({entry.model}{_VISION} has it)"
    held = _checkpoint_of(owner, stem, model)
    if held != model.checkpoint:
        model = model.model_copy(update={"checkpoint": held})
    return HubName(model, packed_as(stem), (note,) if note else (), whole)


def _checkpoint_of(owner: str, stem: str, model: Model) -> Checkpoint | None:
    """In which formats a repository holds a model: what the catalogue lists of it, what its name says, else those of the model's
    own repository. An owner's habits tell FP8 in blocks of 128 from FP8 with a scale for a row."""
    name = f"{owner}/{stem}" if owner else stem
    for row in _read_packed():
        if re.search(row["names"], name.lower()):
            fields = {key: value for key, value in row.items() if key != "names"}
            return Checkpoint(**fields, said_by=f"{name} on the hub")
    words = set(words_of(stem))
    form = next((form for form, named in _FORMATS if any(re.fullmatch(named, word) for word in words)), "")
    if form == "fp8" and (own := model.checkpoint) is not None and own.weights.startswith("fp8"):
        form = own.weights
    if form == "16":
        return None
    return model.checkpoint if not form else Checkpoint(weights=form, said_by=f"the name {name}")


@cache
def _read_packed() -> list[dict[str, Any]]:
    table = read_table(CATALOG / "hub.toml")
    return list(table["packed"])


def _readings(stem: str) -> Iterator[tuple[list[str], bool]]:
    """The words of a name, and whether it is an identifier of a program, whose numbers have lost their points."""
    yield words_of(stem), "-" not in stem
    if "-" in stem and "_" in stem:
        yield words_of(re.sub(r"(?<=\d)_(?=\d)", "-", stem)), False
    if "-" not in stem:
        bare = re.sub(_RECIPE, "", re.sub(r"[Mm]odel[Pp]rovider|[Pp]rovider|[Cc]onfig|[Mm]odel(?![a-z])", "_", stem).lower())
        yield words_of(re.sub(r"(?<=\d)p(?=\d)", ".", bare)), True
        yield words_of(re.sub(r"(?<!\d)(\d)00m\b", r"0.\1b", bare)), True


def _drop_words(words: list[str], times: bool = True) -> Iterator[list[str]]:
    """The words as they are, then without those of formats, of tuning, and (`times`) of dates and lengths from the end; each time
    also without the owner."""
    left = words
    yield from _with_and_without_owner(left)
    for fits in (packed_as, _is_tuned):
        left = [word for place, word in enumerate(left) if place == 0 or not fits(word)]
        yield from _with_and_without_owner(left)
    while times and (last := next((at for at in range(len(left) - 1, 0, -1) if re.fullmatch(TIMES, left[at])), 0)):
        left = left[:last] + left[last + 1 :]
        yield from _with_and_without_owner(left)


def _is_tuned(word: str) -> bool:
    return re.fullmatch(TUNED, word) is not None


def _with_and_without_owner(words: list[str]) -> Iterator[list[str]]:
    yield words
    if (bare := without_owner(words)) is not words:
        yield bare


def _find_begun(key: str, known: dict[str, _Entry]) -> _Entry | None:
    """The only entry whose name begins with `key`: without the active size of a mixture, or without any size."""
    if len(key) < 4:
        return None
    sized = re.search(r"(?<![a-z\d.])\d+(\.\d+)?[bm](?=-|$)|\dx", key) is not None
    longer = {name: entry for name, entry in known.items() if name.startswith(key + ("-a-" if sized else "-"))}
    models = {entry.model for entry in longer.values()}
    own = [entry for entry in longer.values() if not entry.note and not entry.fields]
    return own[0] if len(models) == 1 and own else None


@cache
def _read_known() -> tuple[dict[str, _Entry], dict[str, _Entry]]:
    """Entries by their canonical names, and by the spellings that identifiers have."""
    known = {canonical(words_of(name)): _Entry(name) for name in names("models")}
    table = read_table(CATALOG / "hub.toml")
    for section in ("same", *_NOTES):
        for model, listed in table[section].items():
            for name in listed:
                known[_key(name)] = _Entry(model, (), _NOTES.get(section, ""))
    for row in table["differing"]:
        for name in row["names"]:
            known[_key(name)] = _Entry(row["like"], tuple(row["fields"].items()), row.get("note", ""))
    for listed in (name.rpartition("/")[2] for name in _list_names(table)):  # such as Qwen3-4B-2507-SFT
        bare = [word for place, word in enumerate(words_of(listed)) if place == 0 or not _is_tuned(word)]
        if canonical(words_of(listed)) in known:
            known.setdefault(canonical(bare), known[canonical(words_of(listed))])
    near = {spelled: entry for key, entry in known.items() for spelled in spellings(key)}
    return known, near


def _list_names(table: dict[str, Any]) -> Iterator[str]:
    """All names of `catalog/hub.toml`."""
    for section in ("same", *_NOTES):
        for listed in table[section].values():
            yield from listed
    for row in table["differing"]:
        yield from row["names"]


def _key(name: str) -> str:
    owner, slash, stem = name.rpartition("/")
    return owner.lower() + slash + canonical(words_of(stem))


def nearest_three(wanted: str, known: Mapping[str, str]) -> list[str]:
    """The three values of `known` whose keys are most like `wanted`; keys of the same first letters come first, and among those the
    ones whose size is near."""
    size = _billions(wanted)

    def score(key: str) -> tuple[bool, float]:
        near, stem = _billions(key), key.rpartition("/")[2]
        far = abs(log2(near / size)) if near and size else 3.0
        same = re.split(r"[^a-z]", stem)[0] == re.split(r"[^a-z]", wanted)[0]
        return same, SequenceMatcher(None, wanted, stem).ratio() - 0.08 * min(far, 3.0)

    best: dict[str, tuple[bool, float]] = {}
    for key, value in known.items():
        best[value] = max(best.get(value, (False, -9.0)), score(key))
    return sorted(best, key=lambda value: (not best[value][0], -best[value][1], value))[:3]


def _billions(key: str) -> float:
    """The first size in a name; 0 without one."""
    found = re.search(r"(\d+(?:\.\d+)?)([bm])(?=-|$)", key)
    return float(found[1]) * (1.0 if found[2] == "b" else 1e-3) if found else 0.0


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
     r"|block|kv|static|pertensor|perchannel|tensorwise|ct|\d\.\d+bpw|ptq|torchao|quant|megatron|torchdist|distckpt|mcore"),
)  # fmt: skip
_FORMATS = (
    ("16", r"bf16|fp16|f16|fp32|f32|dequantized"),
    ("mxfp4", r"mxfp4"),
    ("nvfp4", r"nvfp4|fp4|nvfp4a16"),
    ("nf4", r"bnb|nf4|bitsandbytes"),
    ("w8a8", r"w8a8|smoothquant"),
    ("fp8_block", r"mxfp8"),
    ("fp8", r"fp8|f8|w8a8fp8"),
    ("int8", r"int8|8bit|w8a16|q8(0|kxl)?|6bit|q6k"),
    ("int4", r"awq|gptq|4bit|int4|w4a16|w4a8|w4afp8|g128|gs128|128g|32g|hqq|aqlm|autoround|exl2|exl3|int3|3bit|2bit|5bit|gguf|ggml|"
     r"i?q[1-5]\w*|dwq|marlin"),
)  # fmt: skip
"""Words of a name -> number formats of `base.dtypes`, of which the first that fits counts; GPTQ and AWQ with 8 bits say so."""
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


USUAL = 131072
"""Assumed where neither type nor name tells: 2^17, what recent tokenizers come to."""


@functools.cache
def _table() -> dict[str, Any]:
    return read_table(ROOT / "tokenizers.toml")


def vocabulary_of_type(kind: str) -> int | None:
    """The vocabulary that a tokenizer type of Megatron-LM brings with it."""
    size: int | None = _table()["types"].get(kind)
    return size


def vocabulary_of_patch(kind: str) -> int | None:
    """The same of a type that Pai-Megatron-Patch adds, before its extra words."""
    size: int | None = _table()["patched"].get(kind)
    return size


def vocabulary_of_name(name: str) -> int | None:
    """The vocabulary of the model or tokenizer that a name or path speaks of."""
    wanted = name.lower().replace("_", "-")
    return next((int(row["size"]) for row in _table()["names"] if row["part"] in wanted), None)
