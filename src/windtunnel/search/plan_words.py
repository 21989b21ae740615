"""A plan in a line: `tp 4, pp 8, recompute selective`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.search.change import format_value


def value_text(value: Any) -> str:
    """A value, with runs of equal numbers folded: `[4 x 15, 1]`; words joined as Megatron joins axes: `tp-cp-ep-dp-pp`."""
    if isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
        return "-".join(value)  # brackets around words would be markup
    if isinstance(value, tuple) and len(value) > 4 and all(isinstance(part, int) for part in value):
        runs: list[list[int]] = []
        for part in value:
            if runs and runs[-1][0] == part:
                runs[-1][1] += 1
            else:
                runs.append([part, 1])
        return "[" + ", ".join(f"{part} x {times}" if times > 1 else str(part) for part, times in runs) + "]"
    return format_value(value)


def plan_words(fields: Mapping[str, Any], than: Mapping[str, Any] | None = None) -> str:
    """`tp 4, pp 8, …`; with `than`, only what differs from it."""
    words = []
    for path, value in fields.items():
        if than is not None and than.get(path, value) == value and path in than:
            continue
        name = short_name(path)
        if value is None or isinstance(value, bool):
            words.append(name if value else f"no {name}")
        else:
            words.append(f"{name} {value_text(value)}")
    return ", ".join(words)


def short_name(path: str) -> str:
    """`micro batch` of `plan.micro_batch`."""
    return path.removeprefix("plan.").removeprefix("runtime.").replace("_", " ")
