"""What a driver keeps alive, as it was asked for, and where it stands: both are kept in the store."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from windtunnel.fleet.driver.policy import RecoveryPolicy
from windtunnel.fleet.driver.snapshot import DetectionLimits
from windtunnel.records.incidents import Incident


@dataclass(frozen=True)
class JobPlan:
    """`argv`: the command of every rank; `variables`: for its environment; `preload`: modules that a warm node imports before;
    `checkpoint`: a folder that the script is told, or none; `start_seconds`: for agents to come; `load_seconds`: from the order to
    start to the first step; `adopt_seconds`: for an agent that was started again."""

    argv: tuple[str, ...]
    nodes: int
    per_node: int
    spares: int
    run: str
    folder: str
    listen: str = "127.0.0.1:0"
    checkpoint: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    limits: DetectionLimits = field(default_factory=DetectionLimits)
    policy: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    start_seconds: float = 120.0
    load_seconds: float = 1800.0
    adopt_seconds: float = 15.0
    grace: float = 0.0

    @property
    def world(self) -> int:
        return self.nodes * self.per_node


class JobState(msgspec.Struct):
    """Where a job stands. `tested`: spare -> unix seconds when it passed its tests; `phase`: RUN, DETECT, DIAGNOSE, WAIT, START,
    LOAD, REPLAY or ENDED, `before`: the one that a fault ended; `base`: the step of the checkpoint that this attempt began with;
    `reached`: the last step of any attempt; `ran`: unix seconds when training last went on; `fruitless`: attempts in a row that
    have not reached a step, this one included."""

    nodes: list[str] = []
    spares: list[str] = []
    blocked: list[str] = []
    tested: dict[str, float] = {}
    address: str = ""
    phase: str = "WAIT"
    before: str = "RUN"
    attempt: int = -1
    restarts: int = 0
    fruitless: int = 0
    counts: dict[str, int] = {}
    base: int = 0
    reached: int = 0
    ran: float = 0.0
    incidents: int = 0
    open: list[Incident] = []
    code: int = 0
