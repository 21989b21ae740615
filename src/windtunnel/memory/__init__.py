"""Plan -> bytes: what the fullest GPU of every pipeline stage holds, when, and whether it fits."""

from windtunnel.memory.advice import shortfall
from windtunnel.memory.result import StageMemory
from windtunnel.memory.snapshot import dumps, snapshot
from windtunnel.memory.stage import curve, memory_of
from windtunnel.memory.walk import activation_walk

__all__ = ["StageMemory", "activation_walk", "curve", "dumps", "memory_of", "shortfall", "snapshot"]
