"""What a source is: a name of the catalogue, a file of ours, or one of another tool."""

from __future__ import annotations

import re
from pathlib import Path

from windtunnel.base.errors import FileError, SpecError, nearest
from windtunnel.base.files import without_gz
from windtunnel.formats.importers import MODEL_APART, OWN
from windtunnel.formats.jobs.import_job import format_of_table
from windtunnel.formats.jobs.recipes.values import split
from windtunnel.formats.jobs.rl.nemo_rl import open_defaults
from windtunnel.formats.jobs.scripts.script_call import file_of
from windtunnel.formats.text.source import read_source
from windtunnel.formats.text.tool_marks import hint_of_text, tool_of_text
from windtunnel.spec import names
from windtunnel.spec.loading.files import SUFFIXES, read_table


def check_path(source: str) -> None:
    """UnknownName for a word that is not in the catalogue, FileError for a path that is not a file, each with a suggestion."""
    path = Path(file_of(split(source)[0]))
    try:
        kind = "file" if path.is_file() else "directory" if path.is_dir() else "missing" if not path.exists() else "special"
    except (OSError, ValueError) as error:
        raise FileError(
            "JOB", source, "a name of the catalogue or a file", f"{getattr(error, 'strerror', None) or error}."
        ) from None
    allowed = "a job or a model of the catalogue, or a file that describes one"
    if kind == "directory":
        inside = [name for name in ("config.json", "job.toml", "train.toml") if (path / name).is_file()]
        raise FileError(
            "JOB", source, allowed, f"It is a directory. Did you mean {path / inside[0]}?" if inside else "It is a directory."
        )
    if kind == "special":
        raise FileError("JOB", source, allowed, "It is a device or a pipe.")
    if kind == "missing":
        catalogue_names = [*names("jobs"), *names("models")]
        if source in names("clusters"):
            raise FileError("JOB", source, allowed, f"It is a cluster: write a model, and --on {source}.")
        if "/" not in source and "\\" not in source and not path.suffix or nearest(source, catalogue_names) == source:
            near = [name for name in catalogue_names if name.startswith(source)] or [
                near for near in [nearest(source, catalogue_names)] if near
            ]
            hint = f"Did you mean {', '.join(map(repr, near[:4]))}?" if near else ""
            raise FileError(
                "JOB", source, allowed, f"{hint} `windtunnel catalog models` and `catalog jobs` list the names.".strip()
            )
        raise FileError("JOB", source, allowed, "There is no such file.")


def format_of_source(source: str) -> str | None:
    """Whose configuration a file is: a name of `formats.importers.IMPORTERS`; "" for a table that no importer recognises;
    "command-line" for what is no table; None for what is no file. FileError for a table that cannot be read."""
    path = Path(file_of(split(source)[0]))
    try:
        if not path.is_file():
            return None
    except (OSError, ValueError):
        return None
    if without_gz(path).suffix.lower() not in SUFFIXES:
        return "command-line"
    return format_of_table(open_defaults(read_table(path), path.parent))


def is_foreign(source: str) -> bool:
    """Whether `source` is a configuration of another tool; a table that no importer recognises is read as a job file."""
    return format_of_source(source) not in (None, "", *OWN)


def is_deepspeed(source: str) -> bool:
    """Whether `source` is a DeepSpeed configuration."""
    return format_of_source(source) == "deepspeed"


_TAKE_MANY: dict[str, tuple[str, ...]] = {
    "": (), "deepspeed": ("DeepSpeed", "Accelerate"), "torchtitan": ("torchtitan",), "job": (), "model": (),
}  # fmt: skip
"""Readers that take a table by keys which files of many tools have, with the marks of their own files."""
_OF_A_JOB = frozenset({"plan", "cluster", "runtime", "base", "workload", "reliability"})
"""Keys of a job file of ours beside its model, whose source may name any tool."""


def refuse_another_tool(source: str) -> None:
    """SpecError for a table of a tool that is not read, with the tool that it looks like and what to type. A table that has keys of
    a job of ours, or no mark of a tool where a reader takes it, is left to that reader."""
    form = format_of_source(source)
    if form not in _TAKE_MANY:
        return
    text, where = read_source(Path(source))
    table = read_table(Path(source))
    tool = tool_of_text(text)
    ours = bool(_OF_A_JOB & set(table)) or not table or form == "" and "model" in table and not tool
    if ours or tool in _TAKE_MANY[form] or not tool and form:
        return
    keys = ", ".join(map(str, table))[:60]
    raise SpecError(where, f"a table with the keys {keys}", "a configuration that is read", hint_of_text(text))


def leaves_model_open(source: str) -> bool:
    """Whether `source` is a configuration whose model a file or a name beside it says: a simulator's file, a trainer's, or a script
    whose flags have no sizes."""
    form = format_of_source(source)
    return form in MODEL_APART or form == "command-line" and not _has_sizes(source)


def _has_sizes(source: str) -> bool:
    """Whether a script has Megatron-LM's flag of the number of layers, under any spelling, or a pattern of them."""
    text = Path(file_of(split(source)[0])).read_text(encoding="utf-8", errors="replace")
    return re.search(r"--(?:num[-_]layers|hybrid[-_](?:layer|override)[-_]pattern)\b", text) is not None
