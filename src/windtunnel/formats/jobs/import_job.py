"""A job from whatever configuration it is: a table of a tool, a recipe, or flags."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import bare
from windtunnel.formats.jobs import llm_foundry, nanotron, nemo_yaml, neox, several, trainer
from windtunnel.formats.jobs.deepspeed import configuration as deepspeed
from windtunnel.formats.jobs.deepspeed.configuration import from_deepspeed
from windtunnel.formats.jobs.deepspeed.named_files import opened
from windtunnel.formats.jobs.huggingface.config import from_config
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.megatron import table as megatron_table
from windtunnel.formats.jobs.megatron.importer import from_arguments
from windtunnel.formats.jobs.overrides import Stated
from windtunnel.formats.jobs.primus import experiment as primus_job
from windtunnel.formats.jobs.primus import files as primus_files
from windtunnel.formats.jobs.recipes.importer import from_recipe
from windtunnel.formats.jobs.recipes.names import is_recipe
from windtunnel.formats.jobs.scripts.command import LARGEST_SCRIPT
from windtunnel.formats.jobs.scripts.script_call import call_of
from windtunnel.formats.jobs.scripts.sourced import texts_named
from windtunnel.formats.jobs.simulators import calculon, llm_analysis, simumax
from windtunnel.formats.jobs.torchtitan import configuration as torchtitan
from windtunnel.formats.jobs.torchtitan.configuration import from_torchtitan
from windtunnel.formats.text.source import parse_json, read_source
from windtunnel.spec import Job, check
from windtunnel.spec.loading.files import read_table, shape_trouble

_KNOWN = (
    "a Hugging Face config.json (model_type), a configuration of torchtitan, DeepSpeed, GPT-NeoX, nanotron, NeMo, llm-foundry, "
    + "Primus, Accelerate, Axolotl, Calculon, SimuMax or llm-analysis, a Python recipe, or Megatron-LM flags (--num-layers)"
)

_MEGATRON = re.compile(
    r"--(?:num-layers|encoder-num-layers|hidden-size|num-attention-heads|seq-length|[a-z-]*batch-size|[a-z-]+parallel-size)|megatron",
    re.I,
)
"""What a command line of Megatron-LM's has somewhere, if only in the name of what it starts."""
_TableImporter = Callable[[Mapping[str, Any], Job | None, Stated | None], Imported]


@dataclass(frozen=True)
class TableFormat:
    """A tool's configuration that is a table (TOML, YAML or JSON): `telling` says whether a table is one."""

    name: str
    telling: Callable[[Mapping[str, Any]], bool]
    read: _TableImporter


def _is_torchtitan(table: Mapping[str, Any]) -> bool:
    return bool(torchtitan.TELLING & set(table)) and not {"plan", "cluster"} & set(table)


def _is_deepspeed(table: Mapping[str, Any]) -> bool:
    return bool(deepspeed.TELLING & set(table)) and "model_type" not in table


def _several(reader: several.Simulator) -> TableFormat:
    return TableFormat(
        reader.name,
        lambda table: several.telling(reader, table),
        lambda table, on, stated: several.read(reader, table, on, stated),
    )


TABLE_FORMATS = (
    *(_several(reader) for reader in (calculon.READER, simumax.READER, llm_analysis.READER)),
    TableFormat("nanotron", nanotron.telling, nanotron.from_nanotron),
    TableFormat("primus", primus_job.telling, primus_job.from_primus),
    TableFormat("llm-foundry", llm_foundry.telling, llm_foundry.from_llm_foundry),
    TableFormat("megatron-table", megatron_table.telling, megatron_table.from_table),
    TableFormat("torchtitan", _is_torchtitan, from_torchtitan),
    TableFormat("nemo", nemo_yaml.telling, nemo_yaml.from_nemo),
    TableFormat("trainer", trainer.telling, trainer.from_trainer),
    TableFormat("gpt-neox", neox.telling, neox.from_neox),
    TableFormat("deepspeed", _is_deepspeed, lambda table, on, stated: from_deepspeed(table, on)),
)
"""Asked in this order; a table that is none of them is a Hugging Face config.json, which says itself what it lacks."""


def kind_of(table: Mapping[str, Any]) -> str:
    """Whose configuration a table is: a name of `TABLE_FORMATS`, or "huggingface"."""
    return next((form.name for form in TABLE_FORMATS if form.telling(table)), "huggingface")


def import_job(source: str | Path, on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Whatever `source` is: a Hugging Face config.json, a framework's configuration, or Megatron-LM flags (a command line or a
    launch script); a path or text.

    `on` gives what the source does not say: its cluster, for a config.json also plan and runtime, for DeepSpeed also the model.
    Without it `job` is None. What the user has `stated` beside the source beats it. Raises `FileError` for what cannot be read,
    `SpecError` for what cannot be understood or is not modelled.
    """
    if isinstance(source, Path) and is_recipe(source):
        return from_recipe(source, on, stated)
    if isinstance(source, Path) and (call := call_of(source)) is not None:
        source = call.script
        stated = replace(stated or Stated(), arguments=call.arguments, environment=call.environment)
    text, where = read_source(source)
    if not text.strip():
        raise SpecError(where, "", _KNOWN)
    if isinstance(source, Path) and bare(source).suffix.lower() in (".yaml", ".yml"):
        table: Mapping[str, Any] = opened(read_table(source), source.parent)
        return _of_table(primus_files.opened(table, source.parent, stated.environment if stated else {}), on, stated)
    if text.lstrip()[0] in "{[" and not _sections(text):
        read = parse_json(text, where)
        return _of_table(opened(read, source.parent) if isinstance(source, Path) else read, on, stated)
    texts = (text, *texts_named(text, source, LARGEST_SCRIPT)) if isinstance(source, Path) else (text,)
    if any("--" in one for one in texts) and not _sections(text):
        if isinstance(source, Path) and not any(map(_MEGATRON.search, texts)):
            raise SpecError(where, f"a text whose options are none of Megatron-LM's: {text.strip()[:30]}", _KNOWN)
        if isinstance(source, Path):
            stated = replace(stated or Stated(), script=source)
        return from_arguments(text, where, on, stated)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError):
        raise SpecError(where, text.strip()[:60], _KNOWN) from None
    trouble = shape_trouble(table)
    if trouble:
        raise FileError(where, *trouble)
    if kind_of(table) == "huggingface":
        raise SpecError(where, text.strip()[:60], _KNOWN)
    return _of_table(table, on, stated)


def _sections(text: str) -> bool:
    """Whether a text has lines such as [training], as torchtitan's files have."""
    return any(line.strip() in ("[training]", "[parallelism]") for line in text.splitlines())


def _of_table(table: Mapping[str, Any], on: Job | None, stated: Stated | None) -> Imported:
    for form in TABLE_FORMATS:
        if form.telling(table):
            return form.read(table, on, stated)
    imported = from_config(table, stated=stated)
    if on is None:
        return imported
    nouns: dict[str, Any] = {"plan": on.plan, "runtime": on.runtime, "cluster": on.cluster, "tokens": on.tokens, "seed": on.seed}
    job = check(Job(name=imported.model.name, model=imported.model, source=imported.model.source, **nouns))
    return replace(imported, plan=job.plan, runtime=job.runtime, job=job)
