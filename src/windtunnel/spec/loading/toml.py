"""Tables of plain values as TOML text: what `tomllib` reads back equal. The standard library has no writer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_lines(table: dict[str, Any], head: str = "") -> Iterator[str]:
    """Lines of `table`: its own values first, then its inner tables under their dotted names."""
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            name = f"{head}.{_key(key)}" if head else _key(key)
            yield ""
            yield f"[{name}]"
            yield from toml_lines(value, name)


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _value(text)


def _value(value: object) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(item, (list, tuple)) for item in value):
        return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):  # in a list: an inline table
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if hasattr(value, "isoformat"):  # a date or a time
        return str(value.isoformat())
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # inf, -inf and nan
    return json.dumps(value)
