"""What a dataset of measured kernels holds, in numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from windtunnel.records.kernel_dataset import Dataset

KEYS = ("level", "op", "phase", "dtype", "mode")


def contents_of(data: Dataset) -> dict[str, Any]:
    """What is in a dataset: `about`, `rows`, and `contents` by level, op, phase, dtype and mode, with the shortest and the longest
    of the usable seconds."""
    groups: dict[tuple[str, ...], list[tuple[str, float | None]]] = {}
    names = (*KEYS, "status", "seconds")
    for *key, status, seconds in zip(*(data.table[name].to_pylist() for name in names), strict=True):
        groups.setdefault(tuple(key), []).append((status, seconds))
    contents = []
    for group, rows in sorted(groups.items()):
        times = [seconds for status, seconds in rows if status == "ok" and seconds is not None]
        contents.append(
            {
                **dict(zip(KEYS, group, strict=True)),
                "rows": len(rows),
                "usable": len(times),
                "shortest_s": min(times, default=None),
                "longest_s": max(times, default=None),
            }
        )
    return {"about": asdict(data.about), "rows": len(data), "contents": contents}
