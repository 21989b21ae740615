"""OmegaConf's interpolations `${a.b}` in a table, replaced by the values that they point to.

Those that point nowhere, or to a resolver such as `${oc.env:NAME}`, stay as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DEEPEST = 20
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
    room[0] -= len(filled)
    return filled if room[0] > 0 else value


def _at(path: str, written: str, table: Mapping[str, Any], depth: int, room: list[int]) -> Any:
    value: Any = table
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return written
        value = value[part]
    room[0] -= 1
    return _fill_value(value, table, depth + 1, room) if room[0] > 0 and not isinstance(value, (Mapping, list)) else written
