"""Plain data of an answer, folded so that a file of expected figures stays small."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LONG = 8
"""Items of a list from which on its sums are watched."""

CLOCKS = ("bound_s", "predict_s", "cpu_s")
"""Seconds that an answer took."""


def folded(value: Any) -> Any:
    """Plain data with numbers, None and names: texts of several words are left out, long lists are sums of their columns."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): folded(item) for key, item in value.items() if not _is_text(item) and key not in CLOCKS}
    if isinstance(value, (list, tuple)):
        return folded_list([item for item in value if not _is_text(item)])
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__


def _is_text(value: Any) -> bool:
    """Words for people, and paths."""
    return isinstance(value, str) and (" " in value or "/" in value)


def folded_list(items: Sequence[Any]) -> Any:
    """A list, or sums of its columns where it is long."""
    if len(items) <= LONG:
        return [folded(item) for item in items]
    if all(isinstance(item, (bool, int, float, np.number)) for item in items):
        numbers = np.asarray(items, np.float64)
        known = numbers[np.isfinite(numbers)]
        return {
            "count": len(items),
            "finite": len(known),
            "sum": float(known.sum()),
            "in_order": float(known @ np.arange(1, len(known) + 1)),
        }
    if all(isinstance(item, (list, tuple, np.ndarray)) and len(item) == len(items[0]) for item in items):
        return [folded_list(column) for column in zip(*items, strict=True)]
    if all(isinstance(item, Mapping) or dataclasses.is_dataclass(item) for item in items):
        tables = [
            item if isinstance(item, Mapping) else {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
            for item in items
        ]
        names = {str(name): None for table in tables for name in table}
        return {name: folded_list([table[name] for table in tables if table.get(name) is not None]) for name in names}
    return [len(items), *(folded(item) for item in items[:LONG])]


def digest(value: Any, each: int = 24) -> list[list[float]]:
    """All numbers, names and gaps of data as sums of `each` of them: of logarithms, so that a small number counts as much as a
    large one, and of these by their places. Of a sum what is beyond whole tens counts, and ten more, so that `moved` sees a change
    of one number by a hundred-thousandth. Empty lists count; long ones of numbers do by their sums."""
    marks = [math.copysign(math.log1p(abs(number) * 1e12), number) for number in _marks(value)]
    parts = [marks[at : at + each] for at in range(0, len(marks), each)]
    sums = [(sum(part), sum(at * mark for at, mark in enumerate(part, 1))) for part in parts]
    return [[round(10.0 + one % 10.0, 7) for one in both] for both in sums]


def _marks(value: Any) -> list[float]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    items = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(items, (list, tuple)):
        if not items:
            return [0.5]
        plain = len(items) > 8 * LONG and all(isinstance(item, (bool, int, float, np.number)) for item in items)
        return [mark for item in (folded_list(items).values() if plain else items) for mark in _marks(item)]
    plain = folded(value)
    if isinstance(plain, str):
        return [] if _is_text(plain) else [float(zlib.crc32(plain.encode()) % 997)]
    if isinstance(plain, int) and abs(plain) > 1e5:
        return [float(plain), float(plain % 997)]  # one more counts
    return [-1.0 if plain is None else float(plain)]
