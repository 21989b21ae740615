"""Figures of a sheet in an answer's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.sheet.blocks import Sheet


def with_figures(table: Mapping[str, Any], sheet: Sheet) -> dict[str, Any]:
    """`table`, with each figure of the sheet that it lacks under the figure's key."""
    return {**table, **{figure.key: figure.value for figure in sheet.figures if figure.key not in table}}
