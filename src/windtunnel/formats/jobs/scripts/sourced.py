"""Scripts that a launch script reads or starts: `source FILE`, `. FILE`, `bash FILE WORDS`. They are read, like the script itself.

A folder that only a command could tell, as in `$(dirname "$0")/conf/model.sh` or `${SCRIPT_DIR}/common.sh`, counts as the folder of
the script or one above it.
"""

from __future__ import annotations

import re
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.formats.text.source import read_source

MOST_FILES = 50
"""Files that one script may name."""
_ABOVE = 4
"""Folders above the script's in which a name is looked for."""
_UNKNOWN = re.compile(r".*(?:\$\w+|[)}`])", re.DOTALL)
_NOT_SETTINGS = frozenset({"activate", ".bashrc", ".bash_profile", ".profile", "conda.sh", "modules.sh"})
_NAMED = re.compile(r"(?:^|[\s;&])(?:source|\.|bash|sh)\s+[\"']?([^\s;&|]+?)[\"']?(?=[\s;&|]|$)", re.MULTILINE)


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
    files = (named_file(word, script) for word in _NAMED.findall(text)[:MOST_FILES])
    return [text_of(path, longest) for path in files if path is not None]
