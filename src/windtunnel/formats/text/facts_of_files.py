"""Facts of several files as one table: those of the first file stand alone, those of each further file under its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windtunnel.formats.reading import Context
from windtunnel.formats.text.lines import LogLines


def add_facts(facts: dict[str, Any], path: Path, own: dict[str, Any]) -> None:
    """Adds what one file says to what the files before it said."""
    facts.update({path.name: own} if facts else own)


def facts_of_logs(
    files: Sequence[Path], context: Context, read: Callable[[LogLines], dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """(facts, what could not be read) of text files, each through `read`, which goes over its lines."""
    facts: dict[str, Any] = {}
    broken: list[str] = []
    for path in files:
        lines = LogLines(path, context.progress)
        own = read(lines)
        broken.extend(lines.broken)
        add_facts(facts, path, own)
    return facts, broken
