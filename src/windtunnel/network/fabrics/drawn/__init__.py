"""Switches of a job's fabric that a builder or a file draws, in place of leaves and spines."""

from windtunnel.network.fabrics.drawn.drawing import DrawnFabric, check_room, drawing_of, is_drawn, levels_of
from windtunnel.network.fabrics.drawn.levels import Levels

__all__ = ["DrawnFabric", "Levels", "check_room", "drawing_of", "is_drawn", "levels_of"]
