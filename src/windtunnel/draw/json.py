"""Figures of a sheet in an answer's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.sheet.blocks import Sheet


def with_figures(table: Mapping[str, Any], sheet: Sheet) -> dict[str, Any]:
    """`table`, with each figure of the sheet that it lacks under the figure's key; one of a part that it has is in that part."""
    return {**table, **{figure.key: figure.value for figure in sheet.figures if figure.key.split(".")[0] not in table}}
