"""A launch script with what it is started with, as one types it: `run.sh 8B 1`, `TP=2 bash run.sh 8B`.

Words behind the script are its positional parameters. Names in front of it are its environment; a name that the script copies a
positional parameter to (`TP=$3`) stands for that parameter where the words do not reach it.

Scripts that a launch script reads or starts: `source FILE`, `. FILE`, `bash FILE WORDS`. They are read, like the script itself.

A folder that only a command could tell, as in `$(dirname "$0")/conf/model.sh` or `${SCRIPT_DIR}/common.sh`, counts as the folder of
the script or one above it.

What a batch system and a parser say of a script before it runs: variables of `#SBATCH` lines, arrays that are never closed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.jobs.scripts.wide_characters import node_text
from windtunnel.formats.text.source import read_source

if TYPE_CHECKING:
    from tree_sitter import Node


SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
"""Endings of launch scripts."""

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SHELLS = frozenset({"bash", "sh", "zsh", "source", "."})
_LONGEST = 16 * 1024


@dataclass(frozen=True)
class ScriptCall:
    """A script with its positional parameters and its environment."""

    script: Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def call_of(source: str | Path) -> ScriptCall | None:
    """The call that a source writes; None for a source without words beside a file's name, and for a file of that very name."""
    text = str(source)
    if " " not in text or "\n" in text or len(text) > _LONGEST or is_file(Path(text)):
        return None
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    environment: dict[str, str] = {}
    while words and _ASSIGNED.fullmatch(words[0]):
        name, _, environment_value = words.pop(0).partition("=")
        environment[name] = environment_value
    if words and words[0] in _SHELLS:
        words.pop(0)
    if not words or not is_file(Path(words[0])):
        return None
    return ScriptCall(Path(words[0]), tuple(words[1:]), environment)


def file_of(source: str) -> str:
    """The file that a source names: the script of a call, else the source as it is."""
    call = call_of(source)
    return source if call is None else str(call.script)


def is_file(path: Path) -> bool:
    """Whether a file lies there; False also for what no file system takes as a name."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


MOST_FILES = 50
"""Files that one script may name."""
_ABOVE = 4
"""Folders above the script's in which a name is looked for."""
_UNKNOWN = re.compile(r".*(?:\$\w+|[)}`])", re.DOTALL)
_NOT_SETTINGS = frozenset({"activate", ".bashrc", ".bash_profile", ".profile", "conda.sh", "modules.sh"})
_SOURCES = re.compile(r"(?:^|[\s;&])(?:(?:source|\.|bash|sh)\s+|(?=\./))[\"']?([^\s;&|]+?)[\"']?(?=[\s;&|\"']|$)", re.MULTILINE)


def named_file(word: str, script: Path) -> Path | None:
    """The file that a word of `script` names; None where none lies there, and for what sets up a shell and no job."""
    rest = _UNKNOWN.sub("", word.strip("\"'"))
    if rest != word:
        rest = rest.lstrip("/")
    name = Path(rest)
    if not rest or len(rest) > 1024 or "\0" in rest or name.is_absolute() or name.name in _NOT_SETTINGS:
        return None
    for folder in (script.parent, *script.parent.absolute().parents[:_ABOVE]):
        try:
            if (found := folder / name).is_file():
                return found
        except OSError:
            return None
    return None


def text_of(path: Path, longest: int) -> str:
    """The text of a named file; empty for one that cannot be read as text or is longer than `longest` characters."""
    try:
        text, _ = read_source(path)
    except FileError:
        return ""
    return text if len(text) <= longest else ""


def texts_named(text: str, script: Path, longest: int) -> list[str]:
    """The texts of the files that a script's text names, without a walk over it."""
    files = (named_file(word, script) for word in _SOURCES.findall(text)[:MOST_FILES])
    return [text_of(path, longest) for path in files if path is not None]


_HEADER = re.compile(r"^#SBATCH[ \t]+(.+?)[ \t]*(?:[ \t]#.*)?$", re.MULTILINE)
_OPTION = re.compile(r"(?:--([a-z-]+)|-([NnG]))[= ]?\s*(\S+)")
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus"}
_COUNT = re.compile(r"(?:[\w.-]+:)*(\d{1,7})(?:-(\d{1,7}))?(?:\(.*\))?")


def slurm_variables(text: str) -> dict[str, str]:
    """Variables that Slurm sets for a script with such `#SBATCH` lines (sbatch's OUTPUT ENVIRONMENT VARIABLES).

    Counts of nodes, tasks and GPUs; a range of nodes gives its larger end. Empty for a script without them.
    """
    counts: dict[str, int] = {}
    for header in _HEADER.findall(text):
        for name, letter, value in _OPTION.findall(header):
            if (count := _COUNT.fullmatch(value)) is not None:
                counts[name or _SHORT[letter]] = int(count[2] or count[1])
    nodes = counts.get("nodes")
    gres = re.search(r"^#SBATCH\s+--gres[= ]gpu(?::[\w.-]+)*?:(\d{1,4})\b", text, re.MULTILINE)
    per_node = counts.get("gpus-per-node") or (int(gres[1]) if gres else None)
    if per_node is None and nodes and counts.get("gpus"):
        per_node = counts["gpus"] // nodes or None
    tasks = counts.get("ntasks") or (nodes or 0) * counts.get("ntasks-per-node", 0) or None
    said = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": counts.get("ntasks-per-node"),
        "SLURM_GPUS_ON_NODE": per_node,
        "SLURM_GPUS_PER_NODE": per_node,
    }
    return {name: str(value) for name, value in said.items() if value}


def open_array(root: Node) -> str | None:
    """The variable of the first array without its closing bracket; None where all are closed."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "variable_assignment":
            value, name = node.child_by_field_name("value"), node.child_by_field_name("name")
            last = value.children[-1] if value is not None and value.type == "array" and value.children else None
            if last is not None and last.is_missing and name is not None:
                return node_text(name)
        waiting.extend(child for child in reversed(node.named_children) if child.has_error)
    return None
