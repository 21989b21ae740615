"""A job from whatever configuration it is: a table of a tool, a recipe, or flags. Reads a configuration of a framework or a model,
whatever its format, as the door does.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import without_gz
from windtunnel.formats.importers import IMPORTERS, Importer, module_of
from windtunnel.formats.jobs import primus as primus_files
from windtunnel.formats.jobs.deepspeed import open_named_files
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.megatron.importer import from_arguments
from windtunnel.formats.jobs.python_trainer import table_of_script
from windtunnel.formats.jobs.recipes import performance_script
from windtunnel.formats.jobs.recipes.importer import file_of_command, from_recipe
from windtunnel.formats.jobs.recipes.values import is_recipe
from windtunnel.formats.jobs.rl.nemo_rl import open_defaults
from windtunnel.formats.jobs.scripts.command import LARGEST_SCRIPT, ScriptCommands
from windtunnel.formats.jobs.scripts.script_call import SCRIPTS, call_of, texts_named
from windtunnel.formats.jobs.scripts.trainer_command import table_of_commands
from windtunnel.formats.jobs.servers.launch import refuse_server
from windtunnel.formats.jobs.several import PARTS
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.source import parse_json, read_source
from windtunnel.formats.text.tool_marks import hint_of_text, tool_of_text
from windtunnel.spec import Job
from windtunnel.spec.loading.files import parse_table, read_table, shape_trouble

_KNOWN = (
    "a Hugging Face config.json (model_type), a configuration of torchtitan, DeepSpeed, GPT-NeoX, nanotron, NeMo, llm-foundry, "
    + "Primus, Accelerate, Axolotl, Calculon, SimuMax or llm-analysis, a Python recipe, or Megatron-LM flags (--num-layers)"
)

_MEGATRON = re.compile(
    r"(?<!-)--(?:num-layers|encoder-num-layers|hidden-size|num-attention-heads|seq-length|[a-z-]{0,40}batch-size|[a-z-]{1,40}parallel-size)|megatron",
    re.I,
)
"""What a command line of Megatron-LM's has somewhere, if only in the name of what it starts."""
_TRAINER = re.compile(
    r"llamafactory-cli|\blmf\s|\bswift\s+(?:sft|pt|rlhf)\b|swift[/.]cli[/.](?:sft|pt|rlhf|main)\b|\btrl\s+(?:sft|grpo)\b|axolotl|openrlhf\.cli\.train_ppo|trl[/.]scripts|-m\s+trl\.cli|-m\s+llamafactory|llamafactory[/.]launcher|"
    r"\btune\s+run\b|\blitgpt[\s/.]+(?:finetune|pretrain)|[Mm]ax[Tt]ext|benchmark_runner|torchtitan|nemo_automodel|\bautomodel\s|prime_rl|\bsft\s+@|levanter|(?:verl|recipe)\.[\w.]*(?:main|trainer)|per[_-](?:device|gpu)[_-]train[_-]batch[_-]size|accelerate\s+launch|"
    r"--config_name|\ballocation_mode=|\bareal[./]|\bskyrl[._]|--max_context_width|\btrainer\.(?:policy|placement)\.|\bactor\.(?:path|backend)=|\b\w{0,80}(?:rl|grpo|ppo)\w{0,80}\.py[\s\\]+--config\b"
)
"""What a script has somewhere that starts a trainer."""
_FIRST_KEY = re.compile(r"---\s*$|[A-Za-z_][\w.-]*:(?:\s|$)")
"""How the first line of a YAML table begins."""
_SPOKEN = re.compile(r"(?:^|\s)--[a-z]|^[ \t]*[{\[]|^[\w.-]+[ \t]*[:=][ \t]*\S+[ \t]*$", re.MULTILINE)
"""What a configuration or a command line has somewhere."""
_ANY = "a configuration, a launch script, a log, last words of a job, a trace, a table of a benchmark, a topology"
_PASTED = "Give it whole, with its header; `windtunnel catalog formats` lists what is read, and `--as FORMAT` says which it is."
_SECTION = re.compile(r"^\[\[?(?!true\b|false\b|null\b)[A-Za-z_][\w.-]*\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)
_TABLES = tuple(importer for importer in IMPORTERS if importer.reads == "table")
_HUGGING_FACE = next(importer for importer in _TABLES if importer.name == "huggingface")


def importer_of_table(table: Mapping[str, Any]) -> Importer | None:
    """The first importer of the registry that recognises a table; None where none does."""
    return next((one for one in _TABLES if module_of(one).recognises_table(table)), None)


def format_of_table(table: Mapping[str, Any]) -> str:
    """Whose configuration a table is: the name of an importer of `importers.IMPORTERS`, "" where none recognises it."""
    found = importer_of_table(table)
    return "" if found is None else found.name


def import_job(source: str | Path, on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Whatever `source` is: a Hugging Face config.json, a framework's configuration, or Megatron-LM flags (a command line or a
    launch script); a path or text.

    `on` gives what the source does not say: its cluster, for a config.json also plan and runtime, for DeepSpeed also the model.
    Without it `job` is None. What the user has `stated` beside the source beats it. Raises `FileError` for what cannot be read,
    `SpecError` for what cannot be understood or is not modelled.
    """
    if isinstance(source, Path) and is_recipe(source):
        if ":" not in str(source):
            text, where = read_source(source)
            if (trained := table_of_script(text)) is not None:
                return _import_table(trained, on, stated)
            refuse_server(text, where, source)
        return from_recipe(source, on, stated)
    if isinstance(source, Path) and (call := call_of(source)) is not None:
        source = call.script
        stated = replace(stated or Stated(), arguments=call.arguments, environment=call.environment)
    text, where = read_source(source)
    if not text.strip():
        raise SpecError(where, "", _KNOWN)
    path, said = source if isinstance(source, Path) else None, stated or Stated()
    script = ScriptCommands(text, where, said.arguments, said.environment, path)
    refuse_server(text, where, path, script)
    if isinstance(source, Path) and without_gz(source).suffix.lower() in (".yaml", ".yml"):
        table: Mapping[str, Any] = open_named_files(read_table(source), source.parent)
        table = open_defaults(table, source.parent)
        return _import_table(
            primus_files.open_experiment(table, source.parent, stated.environment if stated else {}), on, stated, text
        )
    sections = _sections(text) and not (isinstance(source, Path) and source.suffix in SCRIPTS)
    if text.lstrip()[0] in "{[" and not sections:
        read = parse_json(text, where)
        return _import_table(open_named_files(read, source.parent) if isinstance(source, Path) else read, on, stated, text)
    if (pasted := _table_of_pasted(text, source)) is not None:
        return _import_table(pasted, on, stated, text)
    texts = (text, *texts_named(text, source, LARGEST_SCRIPT)) if isinstance(source, Path) else (text,)
    if any(map(performance_script.starts_recipe, texts)) and (options := performance_script.command_of(script)) is not None:
        return performance_script.from_command(options, on, stated)
    if "--factory" in text and (started := file_of_command(script)) is not None:
        return from_recipe(started[0], on, stated, started[1])
    if _TRAINER.search(text) and (trained := _trainer_command(script)) is not None:
        return _import_table(trained, on, stated)
    if any("--" in one for one in texts) and not sections:
        if not any(map(_MEGATRON.search, texts)) and (isinstance(source, Path) or tool_of_text(text)):
            raise _unknown(text, where, f"a text that no reader takes: {text.strip()[:30]}")
        if isinstance(source, Path):
            stated = replace(stated or Stated(), script=source)
        return from_arguments(text, where, on, stated)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError):
        raise _unknown(text, where, text.strip()[:60]) from None
    trouble = shape_trouble(table)
    if trouble:
        raise FileError(where, *trouble)
    if format_of_table(table) in ("", "huggingface"):
        raise _unknown(text, where, text.strip()[:60])
    return _import_table(table, on, stated)


def _table_of_pasted(text: str, source: str | Path) -> Mapping[str, Any] | None:
    """The table of a YAML configuration or a Python script whose name does not say that it is one, as that of a pasted text; None
    for another text, and for YAML that no importer recognises."""
    if isinstance(source, Path) and source.suffix in SCRIPTS:
        return None
    if (trained := table_of_script(text)) is not None:
        return trained
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    if not _FIRST_KEY.match(first):
        return None
    try:
        table = parse_table(text, ".yaml", "text")
    except FileError:
        return None
    if isinstance(source, Path):
        table = dict(open_defaults(open_named_files(table, source.parent), source.parent))
    return None if importer_of_table(table) is None else table


def _unknown(text: str, where: str, got: str) -> SpecError:
    """The error of a text that no reader takes, with the tool that it looks like; of one that is no configuration, what else is."""
    if not (_SPOKEN.search(text) or tool_of_text(text)):
        begins = text.strip().splitlines()[0][:60]
        return SpecError(where, f"a text that no reader takes; it begins {begins!r}", _ANY, _PASTED)
    return SpecError(where, got, _KNOWN, hint_of_text(text))


def _trainer_command(script: ScriptCommands) -> Mapping[str, Any] | None:
    """The table of a script that starts a trainer, with the DeepSpeed file that it names; None for another script."""
    path = script.path
    table = table_of_commands(script.commands, script.variables, path.parent if path is not None else None)
    if table is None or path is None:
        return table
    parts = table.get(PARTS)
    if isinstance(parts, list):
        return {PARTS: [open_named_files(one, path.parent) for one in parts]}
    return open_named_files(table, path.parent)


def _sections(text: str) -> bool:
    """Whether a text has lines such as [training] or [model.lora], as TOML's sections are."""
    return _SECTION.search(text) is not None


def _import_table(table: Mapping[str, Any], on: Job | None, stated: Stated | None, text: str = "") -> Imported:
    """What the table states; Hugging Face's importer says of one that none recognises what is missing."""
    found = importer_of_table(table)
    if found is None and text and tool_of_text(text):
        raise _unknown(text, "FILE", f"a table with the keys {', '.join(map(str, table))[:60]}")
    imported: Imported = module_of(found or _HUGGING_FACE).import_table(table, on, stated)
    return imported


class TableImporterModule(Protocol):
    """What the module of a configuration offers that is a table (TOML, YAML or JSON): `reads="table"` in the registry."""

    def recognises_table(self, table: Mapping[str, Any]) -> bool:
        """Whether a table is of the format: by its keys."""

    def import_table(self, table: Mapping[str, Any], on: Job | None, stated: Stated | None) -> Imported:
        """The nouns that the table states; with `on`, also a job on that job's machine. What is `stated` beats the table."""


def read(files: Sequence[Path], context: Context) -> Reading:
    """The model, and the plan and runtime where they are stated, of one configuration."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} files", "one configuration at a time")
    imported = import_job(files[0], context.on)
    return Reading(imported.format, Content.JOB, imported, {}, imported.built, imported.ignored, imported.assumed)
