"""Plain data as JSON: sorted keys, the same bytes for equal data, no values outside JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any


def json_text(data: Any, indent: int | None = 2) -> str:
    """JSON text with sorted keys; floats in their shortest exact form."""
    return json.dumps(plain_data(data), sort_keys=True, indent=indent, allow_nan=False, ensure_ascii=False)


def plain_data(value: Any) -> Any:
    """Dictionaries, lists, numbers and text of dataclasses, nouns and arrays; numbers that are not finite become null."""
    if hasattr(value, "model_dump"):  # a noun: a model of pydantic, which training processes need not have
        return plain_data(value.model_dump(mode="json", exclude_none=True))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_data(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain_data(v) for k, v in value.items()}
    if isinstance(value, (str, bool)) or value is None:
        return value
    if isinstance(value, Sequence):
        return [plain_data(v) for v in value]
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain_data(value.tolist())
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else None  # -0.0 equals 0.0, so both are written the same
    if isinstance(value, int):
        return value
    return str(value)
