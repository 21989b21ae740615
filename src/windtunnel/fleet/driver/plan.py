"""Plan of a job as the user requested it, and its current state. Both are kept in the driver's store.

The environment that a kept job was started in, and what differs where somebody else goes on with it.

A driver that takes over would otherwise hand its own variables to the ranks that it starts: a job of 600 steps became one of 120.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from windtunnel.base.text import is_secret
from windtunnel.fleet.driver.detect import DetectionLimits
from windtunnel.fleet.driver.policy import RecoveryPolicy
from windtunnel.fleet.fence import describe, tell
from windtunnel.fleet.wire.secrets import write_private
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


FILE = "environment.json"
_OF_SESSION = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM.*|COLUMNS|LINES|DISPLAY|WAYLAND_.*|SSH_.*|XDG_.*|DBUS_.*|TMUX.*|STY|WINDOW.*|LS_COLORS|PS\d|"
    r"COLORTERM|HOSTNAME|LOGNAME|MAIL|INVOCATION_ID|JOURNAL_STREAM|WINDTUNNEL_.*|RAY_.*|KUBE.*|SLURM_.*|SLURMD_.*|PMI.*|PMIX_.*|CUDA_VISIBLE_DEVICES|"
    r"GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|TMPDIR"
)
"""Variables of a terminal, a login or an allocation of nodes: they differ from one driver to the next, and should."""


def keep_environment(folder: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Writes the variables of the job beside its plan, readable by their owner only: names, salted hashes, and the values of those
    that are no secrets. OSError if the folder cannot be written.
    """
    salt = secrets.token_hex(16)
    kept = {
        name: {"hash": _hash(salt, value), **({} if is_secret(name, value) else {"value": value})}
        for name, value in sorted(environment.items()) if not _OF_SESSION.fullmatch(name)
    }  # fmt: skip
    text = json.dumps({"salt": salt, "variables": kept}, indent=1, ensure_ascii=True)
    write_private(folder / FILE, text.encode())


def restore_environment(folder: Path, environment: MutableMapping[str, str] = os.environ) -> list[str]:
    """Gives this process, and so the agents that it starts, the variables that the job was started with; lines that say what
    differed. A secret stays as it is here: only its name and hash are known. Nothing for a job without a record of them.
    """
    try:
        told = json.loads((folder / FILE).read_bytes())
        salt, kept = str(told["salt"]), {str(name): dict(entry) for name, entry in told["variables"].items()}
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        tell(f"the job's environment is not known, and taken from here: {describe(error)}")
        return []
    here = {name for name in environment if not _OF_SESSION.fullmatch(name)}
    differ = sorted(name for name in here & kept.keys() if _hash(salt, environment[name]) != kept[name].get("hash"))
    missing, more = sorted(kept.keys() - here), sorted(here - kept.keys())
    unknown = [name for name in (*differ, *missing) if "value" not in kept[name]]
    for name in (*differ, *missing):
        if "value" in kept[name]:
            environment[name] = str(kept[name]["value"])
    for name in more:
        del environment[name]
    lines = []
    for what, names in (
        ("differ here, and are as the job was started with", [name for name in differ if name not in unknown]),
        ("are not set here, and are as the job was started with", [name for name in missing if name not in unknown]),
        ("are set here only, and not passed on", more),
        ("are secrets, which are not kept, and differ here or are missing: ranks started from now on get what is here", unknown),
    ):
        if names:
            lines.append(f"variables that {what}: {', '.join(names)}")
    return lines


def _hash(salt: str, value: str) -> str:
    return hashlib.sha256(f"{salt}\0{value}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
