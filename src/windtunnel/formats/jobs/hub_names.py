"""The catalogue's model behind names that others use: `unsloth/Llama-3.3-70B-Instruct-bnb-4bit`, `llama3_8b_pretrain_config`,
`/models/Qwen2.5-7B-Instruct`.

A name is cut into words; words of formats, of tuning, and of dates and lengths are dropped, in this order, as far as needed.
What is left must be a name of the catalogue or of `catalog/hub.toml`, number for number: sizes and versions are never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.base.package_data import CATALOG
from windtunnel.formats.jobs.hub_words import TIMES, TUNED, canonical, is_folder, packed_as, spellings, without_owner, words_of
from windtunnel.formats.jobs.near_names import nearest_three
from windtunnel.spec import Model, load_model, names
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.loading.resolve import merge

_RECIPE = r"_(pretrain|finetune|sft|peft|lora|dora|qlora|low|proxy|\d+gpus?|\d+k|config|seq).*$"
_NOTES = {
    "language_alone": "the language model alone: the hub's {name} has an encoder of images beside it",
    "all_keys": "attention over all keys: the indexer that picks some of them is not modelled",
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
    stem = parts[-1]
    known, near = _read_known()
    for words, identifier in _readings(stem):
        for left in _drop_words(words):
            key = canonical(left)
            owned = f"{parts[-2].lower()}/{key}" if len(parts) > 1 else ""
            entry = known.get(owned) or known.get(key) or (near.get(key) if identifier else None)
            if entry is not None:
                return _make_name(entry, stem, True)
    for words, _ in _readings(stem):
        for left in _drop_words(words, times=False):
            if (entry := _find_begun(canonical(left), known)) is not None:
                return _make_name(entry, stem, False)
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


def _make_name(entry: _Entry, stem: str, whole: bool) -> HubName:
    model = load_model(entry.model)
    if entry.fields:
        model = load_model(merge(model.model_dump(exclude_none=True, mode="json"), dict(entry.fields)))
    note = entry.note.format(name=stem)
    if note and entry.model + _VISION in names("models"):
        note += f" ({entry.model}{_VISION} has it)"
    return HubName(model, packed_as(stem), (note,) if note else (), whole)


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
