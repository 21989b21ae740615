"""OmegaConf's interpolations `${a.b}` in a table, replaced by the values that they point to.

`${mul:2,3}`, `div`, `max` and `min` of whole numbers are calculated, as NeMo RL's configurations have them. Those that point
nowhere, or to a resolver such as `${oc.env:NAME}`, stay as written.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

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
