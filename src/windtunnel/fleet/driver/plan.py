"""Plan of a job as the user requested it, and its current state. Both are kept in the driver's store."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from windtunnel.fleet.driver.policy import RecoveryPolicy
from windtunnel.fleet.driver.snapshot import DetectionLimits
from windtunnel.records.incidents import Incident


@dataclass(frozen=True)
class JobPlan:
    """What to run and how to keep it running."""

    argv: tuple[str, ...]
    """Command of every rank."""
    nodes: int
    """Nodes that the job runs on."""
    per_node: int
    """Ranks per node."""
    spares: int
    run: str
    folder: str
    """Folder of the run."""
    listen: str = "127.0.0.1:0"
    """Address of the driver."""
    checkpoint: str = ""
    """Checkpoint folder that is passed to the script, or empty."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables of the ranks."""
    preload: tuple[str, ...] = ()
    """Modules that a keeper imports in advance."""
    limits: DetectionLimits = field(default_factory=DetectionLimits)
    policy: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    start_seconds: float = 120.0
    """To wait for agents to connect."""
    load_seconds: float = 1800.0
    """From the order to start to the first step."""
    adopt_seconds: float = 15.0
    """To wait for an agent that was restarted."""
    grace: float = 0.0
    """Seconds between SIGTERM and SIGKILL."""

    rejoin: bool = False
    """Whether ranks that die are started anew alone, while the others stay: the script calls `train_through_faults`."""
    tee: bool = False
    """Whether the driver prints the ranks' output."""

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.nodes * self.per_node


class JobState(msgspec.Struct):
    """Current state of a job."""

    nodes: list[str] = []
    spares: list[str] = []
    blocked: list[str] = []
    tested: dict[str, float] = {}
    """Spare → unix seconds at which it passed its tests."""
    address: str = ""
    phase: str = "WAIT"
    """RUN, DETECT, DIAGNOSE, WAIT, START, LOAD, REPLAY, ENDED, or REQUEUED: the scheduler starts the job again on other nodes."""
    before: str = "RUN"
    """Phase in which the last fault occurred."""
    attempt: int = -1
    restarts: int = 0
    """Consecutive restarts without steady training between them."""
    fruitless: int = 0
    """Consecutive attempts that have not finished a step, including the current one."""
    counts: dict[str, int] = {}
    """Faults so far by "class@node" and by "class"."""
    base: int = 0
    """Step of the checkpoint from which this attempt started."""
    reached: int = 0
    """Last step of any attempt."""
    ran: float = 0.0
    """Unix seconds at which training last continued."""
    incidents: int = 0
    """Number of incidents so far."""
    open: list[Incident] = []
    """Incidents that are not closed yet."""
    code: int = 0
    store: tuple[str, int] = ("", 0)
    """Address and port of the store of this attempt's ranks."""
    gpus: dict[str, list[str]] = {}
    """What was told of the GPUs of each node."""
    unsaved: Incident | None = None
    """The incident of saves that have failed since the last one that was kept."""


def requeued_state(state: JobState) -> JobState:
    """The state with which a job goes on that its scheduler has started again: on new nodes, with its history."""
    return msgspec.structs.replace(state, nodes=[], spares=[], tested={}, address="", phase="REQUEUED", restarts=0, code=0)
