"""Importers of other tools' job descriptions. Each reports the keys that it ignored and the values that it assumed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats import deepspeed, torchtitan
from windtunnel.formats.deepspeed import from_deepspeed
from windtunnel.formats.huggingface import from_config
from windtunnel.formats.imported import Imported
from windtunnel.formats.megatron import from_arguments
from windtunnel.formats.source import parse_json, read_source
from windtunnel.formats.stated import Stated
from windtunnel.formats.torchtitan import from_torchtitan
from windtunnel.spec import Job, check
from windtunnel.spec.files import shape_trouble

__all__ = ["Imported", "from_arguments", "from_config", "from_deepspeed", "from_torchtitan", "import_job", "kind_of"]

_KNOWN = "a Hugging Face config.json (model_type), a DeepSpeed or torchtitan configuration, or Megatron-LM flags (--num-layers)"


def kind_of(table: Mapping[str, Any]) -> str:
    """Whose configuration a table is: deepspeed, torchtitan or huggingface (which says itself what it lacks)."""
    if torchtitan.TELLING & set(table) and not {"plan", "cluster"} & set(table):
        return "torchtitan"
    return "deepspeed" if deepspeed.TELLING & set(table) and "model_type" not in table else "huggingface"


def import_job(source: str | Path, on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Whatever `source` is: a Hugging Face config.json, a DeepSpeed or torchtitan configuration, or Megatron-LM flags (a command
    line or a launch script); a path or text.

    `on` gives what the source does not say: its cluster, for a config.json also plan and runtime, for DeepSpeed also the model.
    Without it `job` is None. What the user has `stated` beside the source beats it. Raises `FileError` for what cannot be read,
    `SpecError` for what cannot be understood or is not modelled.
    """
    text, where = read_source(source)
    if not text.strip():
        raise SpecError(where, "", _KNOWN)
    if text.lstrip()[0] in "{[" and not _sections(text):
        table = parse_json(text, where)
        return _of_table(table, on, stated)
    if "--" in text and not _sections(text):
        return from_arguments(text, where, on, stated)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError):
        raise SpecError(where, text.strip()[:60], _KNOWN) from None
    trouble = shape_trouble(table)
    if trouble:
        raise FileError(where, *trouble)
    if kind_of(table) != "torchtitan":
        raise SpecError(where, text.strip()[:60], _KNOWN)
    return from_torchtitan(table, on, stated)


def _sections(text: str) -> bool:
    """Whether a text has lines such as [training], as torchtitan's files have."""
    return any(line.strip() in ("[training]", "[parallelism]") for line in text.splitlines())


def _of_table(table: dict[str, Any], on: Job | None, stated: Stated | None) -> Imported:
    kind = kind_of(table)
    if kind == "torchtitan":
        return from_torchtitan(table, on, stated)
    if kind == "deepspeed":
        return from_deepspeed(table, on)
    imported = from_config(table)
    if on is None:
        return imported
    job = check(
        Job(
            name=imported.model.name,
            model=imported.model,
            plan=on.plan,
            runtime=on.runtime,
            cluster=on.cluster,
            tokens=on.tokens,
            seed=on.seed,
            source=imported.model.source,
        )
    )
    return Imported(imported.format, imported.model, job.plan, job.runtime, job, imported.built, imported.ignored, imported.assumed)
