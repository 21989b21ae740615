"""Keys of each format that change neither the time nor the memory of a step (`catalog/harmless_keys.toml`); what else is ignored
may matter."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from windtunnel.spec.loading.catalog import ROOT
from windtunnel.spec.loading.files import read_table

_TRAINERS = ("accelerate", "trainer", "axolotl")


@functools.cache
def _table() -> dict[str, Any]:
    return read_table(ROOT / "harmless_keys.toml")


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
