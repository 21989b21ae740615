"""Mesh of one to four dimensions: a torus without the cables that join the ends."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.network.fabrics.torus import Torus


@dataclass(frozen=True)
class Mesh(Torus):
    """Neighbours joined along every dimension."""

    NAME = "mesh"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.wrap, self.cube) != (1, 1):
            raise SpecError("mesh.wrap", self.wrap, "a torus: the ends of a mesh are not joined", "Write torus:wrap=... instead.")

    @classmethod
    def parameters(cls) -> list[tuple[str, str, str]]:
        """Those of a torus that do not join ends."""
        return [one for one in super().parameters() if one[0] not in ("wrap", "cube")]

    @property
    def rings(self) -> tuple[bool, ...]:
        """No ends are joined."""
        return (False,) * len(self.sizes)
