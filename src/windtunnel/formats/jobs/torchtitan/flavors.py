"""torchtitan's models by name and flavor, as models of the catalogue or as tables: flavors.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.files import table_beside

_TABLE = table_beside(__file__)
FLAVORS: dict[str, str] = _TABLE["catalogue"]
"""Models of the catalogue; what is not here has the name of its flavor."""
ATTENTION_SUFFIXES = ("_flex_attn", "_varlen_attn", "_flex", "_varlen", "_irope")
"""Ends of flavors that choose an attention kernel, not a network."""


def _fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the parts that a table is made `of`, then its own."""
    joined: dict[str, Any] = {}
    for part in table.get("of", ()):
        joined |= _fields(_TABLE["parts"][part])
    return joined | {name: value for name, value in table.items() if name != "of"}


TABLES: dict[str, dict[str, Any]] = {name: _fields(table) for name, table in _TABLE["models"].items()}
"""Models as tables of `spec.Model`."""
