"""The size of a vocabulary from a tokenizer's name (`catalog/tokenizers.toml`); tokenizers themselves are not read."""

from __future__ import annotations

import functools
from typing import Any

from windtunnel.spec.loading.catalog import ROOT
from windtunnel.spec.loading.files import read_table

USUAL = 131072
"""Assumed where neither type nor name tells: 2^17, what recent tokenizers come to."""


@functools.cache
def _table() -> dict[str, Any]:
    return read_table(ROOT / "tokenizers.toml")


def vocabulary_of_type(kind: str) -> int | None:
    """The vocabulary that a tokenizer type of Megatron-LM brings with it."""
    size: int | None = _table()["types"].get(kind)
    return size


def vocabulary_of_patch(kind: str) -> int | None:
    """The same of a type that Pai-Megatron-Patch adds, before its extra words."""
    size: int | None = _table()["patched"].get(kind)
    return size


def vocabulary_of_name(name: str) -> int | None:
    """The vocabulary of the model or tokenizer that a name or path speaks of."""
    wanted = name.lower().replace("_", "-")
    return next((int(row["size"]) for row in _table()["names"] if row["part"] in wanted), None)
