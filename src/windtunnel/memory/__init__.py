"""From a plan to bytes: the memory of the fullest GPU of every pipeline stage, over time, and whether it fits."""

from windtunnel.memory.over_time import PARTS, NoRoom, OverTime, over_time
from windtunnel.memory.replay import Pooled, replay
from windtunnel.memory.result import StageMemory
from windtunnel.memory.snapshot import dumps, snapshot
from windtunnel.memory.stage import curve, memory_of
from windtunnel.memory.tiers import NAMES, TierMemory
from windtunnel.memory.tiers import PARTS as TIER_PARTS
from windtunnel.memory.walk import activation_walk
from windtunnel.memory.why import why

__all__ = [
    "NAMES",
    "PARTS",
    "TIER_PARTS",
    "NoRoom",
    "OverTime",
    "Pooled",
    "StageMemory",
    "TierMemory",
    "activation_walk",
    "curve",
    "dumps",
    "memory_of",
    "over_time",
    "replay",
    "snapshot",
    "why",
]
