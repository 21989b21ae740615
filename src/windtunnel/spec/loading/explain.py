"""Pydantic's ValidationError as one SpecError: path, value, allowed values, nearest known name."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ValidationError

from windtunnel.base.errors import Nothing, SpecError, nearest
from windtunnel.base.files import table_beside, words_by_meaning
from windtunnel.base.quantities import Strict

_BOUND = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


_NOUNS = {
    "model": 'model = "llama3-8b"',
    "plan": "plan = { tp = 2, micro_batch = 1, global_batch = 64, seq = 4096 }",
    "runtime": 'runtime = { framework = "megatron-core" }',
    "cluster": 'cluster = "h100-ib"',
}
"""A line of a job file for each noun that a job needs."""

_LETTERS = re.compile(r"\^\(\[(.+)\]\[0-9\]\{0,4\}\)\+\$")
"""A field's pattern of letters with counts, such as `^([LG][0-9]{0,4})+$`."""


def _words(table: str) -> dict[str, str]:
    """A table of explain.toml, read when the first mistake is explained."""
    return words_by_meaning(table_beside(__file__)[table])


def explain(error: ValidationError, noun: type[BaseModel], path: str) -> SpecError:
    """The first mistake in `error` (unknown keys before all others) as a SpecError; the hint counts the others."""
    complaints = error.errors(include_url=False)
    first = min(complaints, key=lambda one: one["type"] != "extra_forbidden")
    where = _path(first, path)
    got: object = Nothing() if first["type"] == "missing" else first["input"]
    allowed, hint = _allowed_values(first, noun)
    others = [name for one in complaints if one is not first and (name := _path(one, path)) != where]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        hint = f"{hint} Also {'missing' if first['type'] == 'missing' else 'wrong'}: {', '.join(others[:3])}{more}.".strip()
    return SpecError(where, got, allowed, hint)


def _path(one: Any, head: str) -> str:
    """`links[0].rate` of ("links", 0, "rate"); parts in brackets, which say which of several types it is, are left out."""
    path = head
    for part in one["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("["):
            path += f".{part}" if path else part
    return path or "job"


def _allowed_values(one: Any, noun: type[BaseModel]) -> tuple[str, str]:
    kind, context = one["type"], one.get("ctx", {})
    if kind == "missing" and "plan" in noun.model_fields and len(one["loc"]) == 1:
        return _words("allowed")[kind], f"For example: {_NOUNS[str(one['loc'][0])]}." if one["loc"][0] in _NOUNS else ""
    if kind == "missing" and one["loc"][-1:] == ("id",):
        return _words("allowed")[kind], 'Write a name of your own, such as id = "my-cluster".'
    if kind == "extra_forbidden":
        known = _fields_at(noun, one["loc"][:-1])
        return "the fields " + ", ".join(known), _instead(str(one["loc"][-1]), known, noun)
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        if one["loc"][-1:] == ("precision",) and isinstance(one["input"], str) and one["input"].lower() in _PACKED:
            return ", ".join(words), _PACKED_HINT
        near = nearest(one["input"], words) if isinstance(one["input"], str) else None
        return ", ".join(words), f"Did you mean {near!r}?" if near else ""
    if kind in _BOUND:
        key, word = _BOUND[kind]
        return f"a number {word} {context[key]}", ""
    if kind == "string_pattern_mismatch" and (letters := _LETTERS.fullmatch(str(context.get("pattern", "")))):
        return f"letters out of {', '.join(letters[1])}, each with a count of at most 9999 behind it", ""
    if kind == "model_type" and issubclass(noun, Strict):
        return "a table", ""
    if kind == "value_error":
        return str(context.get("error", one["msg"])), ""
    return _words("allowed").get(kind, one["msg"]), ""


_PACKED = ("nf4", "fp4", "int4", "4bit", "int8", "8bit", "qlora", "bnb", "awq", "gptq")
_PACKED_HINT = (
    "These are formats of frozen weights under adapters: --set model.lora.base=nf4 (or fp4, int8) beside precision bf16, "
    "and --set model.lora.rank=16 if the model has no adapters yet."
)
"""Words for weights packed by bitsandbytes and its like, which are not a precision that is trained in."""


LIKE_A_FIELD, LIKE_A_DEGREE = 0.6, 0.5
"""Letters in common from which on an unknown field is taken for a misspelt one; the second for names such as tp, of few letters."""


def _instead(key: str, known: list[str], noun: type[BaseModel]) -> str:
    """Suggestion for an unknown field: the same word elsewhere, the field for another tool's word, or the nearest name."""
    if "model" in noun.model_fields and "plan" in noun.model_fields and (wanted := fields_for(key, noun)):
        return f"Did you mean {' or '.join(map(repr, wanted))}?"
    near = nearest(key, known, LIKE_A_FIELD if len(key) > 3 else LIKE_A_DEGREE)
    return f"Did you mean {near!r}?" if near else "No such field."


def fields_for(word: str, job: type[BaseModel]) -> list[str]:
    """Fields of a job, as dotted paths, that `word` means: the one for another tool's word, or those of that name."""
    meant = _words("fields").get(word.lower())
    homes = [path for path in paths(job) if path.rpartition(".")[2] == word]
    return [meant] if meant else sorted(homes, key=lambda path: (path.count("."), path))[:3]


def paths(noun: type[BaseModel], head: str = "", depth: int = 3) -> list[str]:
    """Dotted paths of the fields of `noun` and of the nouns in it."""
    listed = []
    for name, info in noun.model_fields.items():
        listed.append(head + name)
        if depth:
            listed += [path for inner in _models(info.annotation) for path in paths(inner, f"{head}{name}.", depth - 1)]
    return list(dict.fromkeys(listed))


def _fields_at(noun: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Field names of the noun that sits at `loc` inside `noun`; a part in brackets says which of several it is."""
    several: list[type[BaseModel]] = []
    for part in map(str, loc):
        info = noun.model_fields.get(part)
        if not part.startswith("["):
            several = _models(info.annotation) if info else []
        noun = next((kind for kind in several if not part.startswith("[") or kind.__name__ == part[1:-1]), noun)
    return sorted(info.alias or name for name, info in noun.model_fields.items())


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]
