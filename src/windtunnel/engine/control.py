"""Congestion controls of the packet engine and their parameters. The core's registry is the only list of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from windtunnel.engine import _core


@dataclass(frozen=True)
class Parameter:
    """`unit`: "B/s", "s", "B", "0/1" (a switch) or "" (a plain number). Values lie in [least, most]."""

    name: str
    unit: str
    default: float
    least: float
    most: float
    meaning: str


@dataclass(frozen=True)
class Control:
    """An algorithm. `telemetry`: switches must report load and queue in every packet."""

    name: str
    meaning: str
    parameters: tuple[Parameter, ...]
    telemetry: bool


@functools.cache
def controls() -> dict[str, Control]:
    """Every algorithm by name, in the core's order."""
    return {
        name: Control(name, meaning, tuple(Parameter(*row) for row in rows), telemetry)
        for name, meaning, rows, telemetry in _core.congestion_controls()
    }
