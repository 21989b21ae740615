"""docs/congestion.md lists what the core has, with the values that it has."""

from __future__ import annotations

import re

from congestion_tables import DOCUMENT, with_tables

from windtunnel.engine.packet import controls
from windtunnel.network.congestion import presets


def test_tables_are_in_step() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run: python tests/house/congestion_tables.py"


def test_every_algorithm_and_preset_is_there() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, control in controls().items():
        assert f"<!-- parameters of {name} -->" in text and re.search(rf"^## {name}\b", text, re.MULTILINE)
        for parameter in control.parameters:
            assert f"| {parameter.name} |" in text
    for name in presets():
        assert f"| `{name}` |" in text
