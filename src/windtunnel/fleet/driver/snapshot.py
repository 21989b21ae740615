"""Snapshot of a job that the fault rules read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.fleet.wire.messages import RankReport
from windtunnel.records.incidents import Class


@dataclass(frozen=True)
class DetectionLimits:
    """Thresholds of the fault rules, in seconds: how long a symptom lasts before it is a fault."""

    silent: float = 2.5
    """No heartbeat of an agent."""
    stopped: float = 2.0
    """A process in state T."""
    mute: float = 15.0
    """No heartbeat in the ring of a process that runs."""
    stall: float = 30.0
    """No record of any rank while all processes are alive; five steps if that is longer."""
    traffic: float = 60.0
    """No traffic on NICs that moved bytes before."""
    early: float = 10.0
    """A rank has exited with status 0 while others train."""
    step: tuple[float, float] = (0.0, 1e12)
    """Range of a step, (least, most), from a prediction."""
    settle: float = 0.3
    """Waiting time after the first symptom for related ones."""


@dataclass(frozen=True)
class NodeSnapshot:
    """State of a node at one moment."""

    node: str
    silent: float = 0.0
    """Seconds since the agent's last heartbeat."""
    connected: bool = True
    ranks: tuple[RankReport, ...] = ()
    memory_kills: int = 0
    """Out-of-memory kills in this attempt."""
    stopped: dict[int, float] = field(default_factory=dict)
    """Seconds that each process has been stopped, by rank."""
    traffic_still: float | None = None
    """Seconds since the NICs last moved a byte; None if they never did."""


@dataclass(frozen=True)
class JobSnapshot:
    """State of a job at one moment."""

    now: float
    """Unix seconds."""
    nodes: Sequence[NodeSnapshot] = ()
    """Nodes that show something unusual."""
    running: int = 0
    """Whether ranks of the job have not ended yet (0: all have)."""
    still: float | None = None
    """Seconds since any rank wrote a record; None before the first."""
    step_seconds: float = 0.0
    """Duration of a typical step; 0 if unknown."""
    steps_seen: int = 0
    """Number of steps in that average."""


@dataclass(frozen=True)
class DetectedFault:
    """A fault that a rule has detected."""

    what: Class
    """Class of the fault."""
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    evidence: str
    began: float
    """Unix seconds of the first symptom."""
    seen: float
    """Unix seconds of the detection."""
    separable: bool = True
    """True: `nodes` are the culprits. False: the culprit is one of `nodes`."""
