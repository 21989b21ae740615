"""How a Python recipe is named: `FILE.py`, or `FILE.py:FUNCTION` where a file has several."""

from __future__ import annotations

import re
from pathlib import Path

_NAMED = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)", re.DOTALL)


def split(source: str) -> tuple[str, str | None]:
    """(file, function) of `FILE.py:FUNCTION`; (source, None) of anything else."""
    match = _NAMED.fullmatch(source)
    return (match["file"], match["name"]) if match else (source, None)


def is_recipe(source: str | Path) -> bool:
    """Whether a source names a Python file."""
    return split(str(source))[0].endswith(".py")
