"""A job from what is no job of ours: a model of the catalogue or a hub, or files of other tools, on a machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.base.files import without_gz
from windtunnel.formats.jobs.hub_names import HubName, find_named, unknown_model
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.recipes.values import is_recipe
from windtunnel.formats.jobs.scripts.script_call import SCRIPTS
from windtunnel.formats.jobs.servers.launch import refuse_server
from windtunnel.formats.jobs.several import merge_texts
from windtunnel.formats.text.source import read_source
from windtunnel.jobs.imports import apply_deepspeed, import_on_machine, load_model_apart, put_on_machine
from windtunnel.jobs.loaded import LoadedJob, load_own
from windtunnel.jobs.machines import example_job
from windtunnel.jobs.sources import (
    check_path,
    format_of_source,
    is_deepspeed,
    is_foreign,
    leaves_model_open,
    refuse_another_tool,
)
from windtunnel.spec import load_model, names
from windtunnel.spec.loading.files import SUFFIXES


def load_foreign(
    source: str | None, overrides: Sequence[str] | None, on: str | None, model: str | None, flags: str | None
) -> LoadedJob:
    """As `jobs.load.load_described_job`, before the files that NCCL's variables name."""
    changes = list(overrides or ())
    if model is not None and flags is not None:
        raise SpecError("--megatron", flags, "either --model or --megatron")
    if model in names("models") and source in names("jobs"):
        return load_own(source, on, [f"model={model}", *changes])
    if model is not None and source is not None and is_deepspeed(source):
        return apply_deepspeed(Path(source), on, changes, model)
    if model is not None and source is not None and (is_recipe(source) or leaves_model_open(source)):
        if leaves_model_open(model):
            return import_on_machine(merge_texts([model, source]), on, changes)
        return import_on_machine(Path(source), on, changes, beside=load_model_apart(model))
    if flags is not None or model is not None:
        if flags is not None and source is not None and Path(source).suffix in SCRIPTS:
            raise SpecError(
                "--megatron", flags, "flags in place of a script", "--set model.vocab=N and the like change what a script says."
            )
        if source is not None and on is not None:
            raise SpecError(
                "JOB", source, f"left out beside --model and --on: JOB {source!r} and --on {on!r} both name a machine",
                f"Write --model {model or 'FILE'} --on {on}.",
            )  # fmt: skip
        if model is not None and len(model) <= LONGEST and not os.path.exists(model) and Path(model).suffix not in SUFFIXES:
            notes: list[str] = []
            apart = load_model_apart(model, notes)
            return put_on_machine(Imported("the catalogue's model", apart, assumed=tuple(notes)), on or source, changes)
        return import_on_machine(Path(model) if model is not None else str(flags), on or source, changes, flags=flags is not None)
    if not source:
        raise SpecError("JOB", Nothing(), "a name of the catalogue or a file", f"For example: {example_job()}.")
    if source in names("jobs"):
        return load_own(source, on, changes)
    if source in names("models"):
        return put_on_machine(Imported("the catalogue's model", load_model(source)), on, changes)
    if (named := named_model(source)) is not None:
        first = Imported("the catalogue's model", named.model, assumed=_said_of(source, named))
        return put_on_machine(first, on, changes)
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", source) and is_hub_id(source):
        raise unknown_model("JOB", source, "`windtunnel predict config.json --on CLUSTER`")
    check_path(source)
    if without_gz(Path(source)).suffix.lower() in (".yaml", ".yml") and Path(source).is_file():
        refuse_server(*read_source(Path(source)), Path(source))
    refuse_another_tool(source)
    if is_foreign(source):
        return import_on_machine(Path(source), on, changes)
    if format_of_source(source) == "model":
        return put_on_machine(Imported("a model file", load_model(Path(source))), on, changes)
    return load_own(source, on, changes)


def named_model(source: str) -> HubName | None:
    """What a name as on a hub, or a path that ends in one, means, such as `meta-llama/Llama-3.1-70B`; None for other words."""
    if not is_hub_id(source):
        return None
    found = find_named(source)
    whole = found is not None and (found.whole or "/" in source or source != source.lower())
    return found if whole else None


LONGEST = 200
"""Letters of a name as on a hub, or of a path to its weights."""


def is_hub_id(source: str) -> bool:
    """Whether a word can be a name as on a hub, or a path to weights that are not on this machine; no file that exists."""
    if (
        len(source) > LONGEST
        or os.path.exists(source)
        or is_recipe(source)
        or Path(source).suffix.lower() in (*SUFFIXES, *SCRIPTS, ".py")
    ):
        return False
    return re.fullmatch(r"[\w./:~-]+", source) is not None and any(letter.isalpha() for letter in source)


def _said_of(source: str, named: HubName) -> tuple[str, ...]:
    """What is assumed beside the model: that its weights are not packed, which only adapters' frozen ones can be."""
    if named.packed in ("", "16"):
        return named.notes
    return (*named.notes, f"weights of 16 bits: {source} holds them as {named.packed}, which frozen weights of adapters can be")
