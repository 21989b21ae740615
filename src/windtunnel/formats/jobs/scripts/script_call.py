"""A launch script with what it is started with, as one types it: `run.sh 8B 1`, `TP=2 bash run.sh 8B`.

Words behind the script are its positional parameters. Names in front of it are its environment; a name that the script copies a
positional parameter to (`TP=$3`) stands for that parameter where the words do not reach it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
"""Endings of launch scripts."""

_NAMED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
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
    while words and _NAMED.fullmatch(words[0]):
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
