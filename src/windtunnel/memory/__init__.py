"""Plan -> bytes: what the fullest GPU of every pipeline stage holds, when, and whether it fits."""

from windtunnel.memory.advice import shortfall
from windtunnel.memory.stage import curve, memory_of
from windtunnel.memory.walk import activation_walk

__all__ = ["activation_walk", "curve", "memory_of", "shortfall"]
