"""Values of a Python recipe: settings by dotted path, calls that are not followed, and what is not known.

How a Python recipe is named: `FILE.py`, or `FILE.py:FUNCTION` where a file has several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field

MOST_LEAVES = 10_000


class Unknown:
    """A value that reading alone does not give."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN = Unknown()


@dataclass
class Named:
    """A name that the file does not define: `torch.bfloat16`, a class of the framework."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass
class Made:
    """The result of a call that is not followed: its name, arguments, what is set on it later, and the function's package.

    Of a class in reach also its `bases`, nearest first, and the `defaults` of its fields.
    """

    name: str
    args: list[Any] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    home: str = ""
    bases: list[str] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)

    def get(self, path: str) -> Any:
        """What is at a dotted path, None where nothing is."""
        value: Any = self
        for part in path.split("."):
            value = value.fields.get(part) if isinstance(value, Made) else None
        return value

    def put(self, path: str, value: Any) -> None:
        """Sets what is at a dotted path, with the parts on its way."""
        part = self
        *sections, last = path.split(".")
        for section in sections:
            inner = part.fields.get(section)
            part.fields[section] = inner if isinstance(inner, Made) else Made("" if inner is None else str(inner))
            part = part.fields[section]
        part.fields[last] = value

    def leaves(self, head: str = "") -> Iterator[tuple[str, Any]]:
        """(path, value) of everything that was set, calls by their name; at most 10,000, of a result that holds itself too."""
        return islice(self._leaves(head, ()), MOST_LEAVES)

    def _leaves(self, head: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
        within = (*above, id(self))
        for key, value in self.fields.items():
            path = f"{head}.{key}" if head else key
            yield path, value
            if isinstance(value, Made) and id(value) not in within:
                yield from value._leaves(path, within)


_PLAIN = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False}


def literal(text: str) -> Any:
    """A value of a command line as Hydra's grammar has it: a number, a list, True, None, or its text."""
    text = text.strip("\"'")
    if text in _PLAIN:
        return _PLAIN[text]
    if text.startswith("[") and text.endswith("]"):
        return [literal(one.strip()) for one in text[1:-1].split(",") if one.strip()]
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else text


def pair_of(text: str) -> tuple[str, Any]:
    """(path, value) of `section.field=value`."""
    path, _, said = text.partition("=")
    return path.lstrip("+~"), literal(said)


_NAMED = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)", re.DOTALL)


def split(source: str) -> tuple[str, str | None]:
    """(file, function) of `FILE.py:FUNCTION`; (source, None) of anything else."""
    match = _NAMED.fullmatch(source)
    return (match["file"], match["name"]) if match else (source, None)


def is_recipe(source: str | Path) -> bool:
    """Whether a source names a Python file."""
    return split(str(source))[0].endswith(".py")
