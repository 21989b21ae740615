"""What a driver sees of a job at a moment: the input of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.fleet.wire.messages import RankReport
from windtunnel.records.incidents import Class


@dataclass(frozen=True)
class DetectionLimits:
    """When a rule fires, in seconds. `silent`: without a heartbeat of an agent; `stopped`: of a process that is stopped; `mute`: a
    ring without a beat while the process is said to run; `stall`: no record anywhere while all live, or five steps if that is
    more; `traffic`: NICs that moved bytes and move none; `early`: a rank that is done before the others; `step`: (least, most) of
    a step by its prediction; `settle`: after the first sign, for what belongs to it."""

    silent: float = 2.5
    stopped: float = 2.0
    mute: float = 15.0
    stall: float = 30.0
    traffic: float = 60.0
    early: float = 10.0
    step: tuple[float, float] = (0.0, 1e12)
    settle: float = 0.3


@dataclass(frozen=True)
class NodeSnapshot:
    """`silent`: seconds since the agent's last heartbeat; `memory_kills`: in this attempt; `stopped`: seconds that a process has
    been seen stopped, by rank; `traffic_still`: seconds since the NICs moved a byte, None where they never did."""

    node: str
    silent: float = 0.0
    connected: bool = True
    ranks: tuple[RankReport, ...] = ()
    memory_kills: int = 0
    stopped: dict[int, float] = field(default_factory=dict)
    traffic_still: float | None = None


@dataclass(frozen=True)
class JobSnapshot:
    """`nodes`: those that show something unusual; `running`: ranks of the job that have not ended; `still`: seconds since any rank
    wrote a record, None before the first; `step_seconds`: of a usual step, 0 unknown; `now`: unix seconds."""

    now: float
    nodes: Sequence[NodeSnapshot] = ()
    running: int = 0
    still: float | None = None
    step_seconds: float = 0.0
    steps_seen: int = 0


@dataclass(frozen=True)
class DetectedFault:
    """What went wrong. `separable`: whether the nodes are known to be the culprits, or only to be in the group of the culprit."""

    what: Class
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    evidence: str
    began: float
    seen: float
    separable: bool = True
