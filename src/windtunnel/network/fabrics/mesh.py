"""Mesh of one to four dimensions: a torus without the cables that join the ends."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.network.fabrics.torus import Torus


@dataclass(frozen=True)
class Mesh(Torus):
    """Neighbours joined along every dimension."""

    NAME = "mesh"
    WRAPS = False
