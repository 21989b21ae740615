"""A nested configuration that remembers what was read from it.

OmegaConf's interpolations `${a.b}` in a table, replaced by the values that they point to.

`${mul:2,3}`, `div`, `max` and `min` of whole numbers are calculated, as NeMo RL's configurations have them. Those that point
nowhere, or to a resolver such as `${oc.env:NAME}`, stay as written.

Keys of each format that change neither the time nor the memory of a step (`catalog/harmless_keys.toml`); what else is ignored
may matter.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.spec.loading.files import ROOT, read_table

COUNT = "a whole number of 1 or more"

_WANTED = {bool: "true or false", int: "a whole number", str: "text", float: "a number"}


@dataclass
class Keys:
    """Values by dotted path; `used` are the paths that something looked at."""

    table: Mapping[str, Any]
    used: set[str] = field(default_factory=set)

    def get(self, path: str) -> Any:
        """What is at `path`, None where nothing is."""
        self.used.add(path)
        value: Any = self.table
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def get_typed(self, path: str, kind: type[Any]) -> Any:
        """As `get`, None for "auto" too; SpecError for a value of another kind."""
        value = self.get(path)
        if value is None or value == "auto" and kind is not str:
            return None
        fits = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
        if not fits or isinstance(value, bool) and kind is not bool:
            raise SpecError(path, value, _WANTED[kind])
        return value

    def whole_number(self, path: str) -> int | None:
        """A whole number; DeepSpeed writes some as 5e8."""
        value = self.get_typed(path, float)
        if value is None:
            return None
        if value != value or abs(value) > 1e15 or value != int(value):
            raise SpecError(path, value, "a whole number")
        return int(value)

    def count(self, path: str) -> int | None:
        """A whole number of 1 or more."""
        value = self.whole_number(path)
        if value is not None and not 1 <= value <= 10**9:
            raise SpecError(path, value, COUNT)
        return value

    def required_count(self, path: str) -> int:
        """As `count`; SpecError where nothing is."""
        value = self.count(path)
        if value is None:
            raise SpecError(path, Nothing(), COUNT)
        return value

    def text(self, path: str) -> str | None:
        value: str | None = self.get_typed(path, str)
        return value

    def flag(self, path: str) -> bool:
        return bool(self.get_typed(path, bool))

    def built(self) -> tuple[str, ...]:
        """Paths that something looked at and found, in order."""
        return tuple(sorted(path for path in self.used if self.get(path) is not None))

    def left_over(self) -> tuple[str, ...]:
        """Paths that nothing looked at."""
        return tuple(sorted(path for path in _leaves(self.table, "") if not self._is_covered(path)))

    def _is_covered(self, path: str) -> bool:
        return any(path == used or path.startswith(f"{used}.") for used in self.used)


def _leaves(table: Mapping[str, Any], head: str) -> Iterator[str]:
    for key, value in table.items():
        path = f"{head}.{key}" if head else str(key)
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path


_DEEPEST = 20
_SUM = re.compile(r"\$\{(mul|div|max|min):\s*(-?[\d.]+)\s*,\s*(-?[\d.]+)\s*\}")
_SUMS: dict[str, Callable[[int, int], int]] = {"mul": operator.mul, "div": operator.floordiv, "max": max, "min": min}
_WHOLE = re.compile(r"\$\{([\w.-]+)\}")
_MOST = 1_000_000


def interpolate(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the values in place; one that points to itself, or grows past a million characters, stays as written."""
    room = [_MOST]
    return {key: _fill_value(value, table, 0, room) for key, value in table.items()}


def _fill_value(value: Any, table: Mapping[str, Any], depth: int, room: list[int]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill_value(one, table, depth, room) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill_value(one, table, depth, room) for one in value]
    if not isinstance(value, str) or "${" not in value or depth > _DEEPEST:
        return value
    if (whole := _WHOLE.fullmatch(value)) is not None:
        return _at(whole[1], value, table, depth, room)
    filled = _WHOLE.sub(lambda match: str(_at(match[1], match[0], table, depth, room)), value)
    filled = _SUM.sub(_calculate, filled)
    room[0] -= len(filled)
    return filled if room[0] > 0 else value


def _calculate(match: re.Match[str]) -> str:
    """The value of `${mul:2,3}`, of whole numbers; as written for others."""
    sign, left, right = match.groups()
    if not (left.lstrip("-").isdecimal() and right.lstrip("-").isdecimal()) or sign == "div" and int(right) == 0:
        return match[0]
    return str(_SUMS[sign](int(left), int(right))) if len(left) + len(right) < 30 else match[0]


def _at(path: str, written: str, table: Mapping[str, Any], depth: int, room: list[int]) -> Any:
    value: Any = table
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return written
        value = value[part]
    room[0] -= 1
    return _fill_value(value, table, depth + 1, room) if room[0] > 0 and not isinstance(value, (Mapping, list)) else written


_TRAINERS = ("accelerate", "trainer", "axolotl")


@functools.cache
def _table() -> dict[str, Any]:
    return read_table(ROOT / "harmless_keys.toml")


def harmless_of_trainer(trainer: str) -> list[str]:
    """Keys of a trainer of reinforcement learning that its update does not have, and that cost nothing."""
    keys: list[str] = _table()["rl"][trainer]
    return keys


def is_harmless(key: str, form: str = "") -> bool:
    """Whether an ignored key of a format changes nothing that is predicted. A flag may have its value behind it."""
    path = key.partition(" ")[0].lstrip("-").replace("-", "_")
    first, last = path.partition(".")[0], path.rpartition(".")[2]
    if form in ("huggingface", ""):
        return last in _table()["huggingface"]
    if any(one in form for one in _TRAINERS):
        return first in _table()["trainer"] or last in _table()["trainer"]
    sections = _table()["sections"].get(form, [])
    return any(path == one or path.startswith(f"{one}.") for one in sections) or last in _table()["training"]


def split(ignored: Sequence[str], form: str) -> tuple[list[str], list[str]]:
    """(keys that may matter, keys without effect)."""
    matter = [key for key in ignored if not is_harmless(key, form)]
    return matter, [key for key in ignored if is_harmless(key, form)]
