"""Plan of a job as the user requested it, and its current state. Both are kept in the driver's store.

The environment that a kept job was started in, and what differs where somebody else goes on with it.

A driver that takes over would otherwise hand its own variables to the ranks that it starts: a job of 600 steps became one of 120.

Recovery policy: the action for a fault as a pure function of the fault and the state of the job.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

import msgspec

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.text import is_secret
from windtunnel.fleet.driver.detect import DetectedFault, DetectionLimits
from windtunnel.fleet.fence import describe, tell
from windtunnel.fleet.wire.messages import RankReport
from windtunnel.fleet.wire.secrets import write_private
from windtunnel.records.incidents import Action, Incident

ACTIONS_BY_FAULT: Mapping[str, tuple[Action, Action]] = {
    "crash": ("retry", "replace"),
    "segfault": ("retry", "replace"),
    "hang": ("retry", "replace"),
    "nccl": ("retry", "replace"),
    "traffic-gone": ("retry", "replace"),
    "link": ("retry", "replace"),
    "cuda": ("replace", "replace"),
    "node-lost": ("replace", "replace"),
    "oom": ("retry", "stop"),
    "nan": ("retry", "stop"),
    "data": ("retry", "stop"),
    "early-exit": ("retry", "stop"),
    "storage": ("retry", "stop"),
    "checkpoint": ("stop", "stop"),
    "agent-lost": ("none", "none"),
    "slow": ("none", "none"),
    "gpu": ("none", "none"),
    "planned": ("replace", "replace"),
}
"""By class of fault: the first action, and the action once the node (replace) or the job (stop) exceeds its limit."""


NOT_OF_THE_PROGRAM = ("node-lost", "traffic-gone", "hang", "agent-lost", "slow", "planned")
"""Faults that are not caused by a program that fails before its first step."""


FRUITLESS_REJOINS = 2
"""Rejoins in a row without a step until all ranks are started again."""


@dataclass(frozen=True)
class RecoveryPolicy:
    """Limits and options of the recovery."""

    retries: int = 10
    """Consecutive restarts without `steady` seconds of training between them."""
    same: int = 2
    """Faults of one class on one node, or of a class that the program itself causes, until the second action applies."""
    fruitless: int = 3
    """Consecutive attempts that end before their first step until the program is blamed."""
    shrink: bool = False
    """Whether the job may continue on fewer nodes."""
    steady: float = 600.0
    """Seconds of training after which restarts are no longer consecutive."""
    tests: tuple[tuple[str, ...], ...] = ()
    """Self-tests of spares and suspects, each with its options."""
    fresh: float = 3600.0
    """Seconds after which a spare is tested again before use; an idle node can break unnoticed."""
    after: bool = False
    """Whether a suspect is tested before it is used again."""
    test_seconds: float = 60.0
    """Time limit of a self-test."""
    actions: Mapping[str, tuple[Action, Action]] = field(default_factory=lambda: dict(ACTIONS_BY_FAULT))
    """As `ACTIONS_BY_FAULT`."""


@dataclass(frozen=True)
class RecoveryContext:
    """State of a job that the policy reads."""

    nodes: tuple[str, ...]
    """Nodes that the job runs on."""
    able: frozenset[str]
    """Nodes that can be used."""
    spares: tuple[str, ...]
    """Tested spare nodes."""
    restarts: int = 0
    """Consecutive restarts."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Faults so far by "class@node" and by "class"."""
    fruitless: int = 0
    """Consecutive attempts without a step, including the last one."""
    sick: frozenset[str] = frozenset()
    """Nodes with a GPU that is not well: at their next fault they are replaced at once."""


@dataclass(frozen=True)
class RecoveryDecision:
    """What to do."""

    action: Action
    nodes: tuple[str, ...]
    """Nodes of the next attempt, in the order of their ranks."""
    evict: tuple[str, ...] = ()
    """Nodes that are blocked from now on."""
    why: str = ""
    out_of_nodes: bool = False
    """Whether the job stops because it has too few nodes, and for no other reason."""


def decide(fault: DetectedFault, context: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision:
    """The action for `fault`. It never exceeds the policy's consecutive restarts and never uses a node that is not able."""
    first, then = policy.actions[fault.what]
    if fault.what not in NOT_OF_THE_PROGRAM and context.fruitless >= policy.fruitless:
        return RecoveryDecision("stop", (), why=f"{context.fruitless} attempts in a row ended before their first step")
    worn = [node for node in fault.nodes if context.counts.get(f"{fault.what}@{node}", 0) >= policy.same]
    if first == "none":
        return RecoveryDecision("none", context.nodes)
    if first == "stop":
        return RecoveryDecision("stop", (), why="another attempt would lose it again")
    if context.restarts >= policy.retries:
        return RecoveryDecision(
            "stop", (), why=f"{context.restarts} restarts in a row, and no {policy.steady:g} s of training between them"
        )
    if then == "stop" and context.counts.get(fault.what, 0) >= policy.same:
        return RecoveryDecision("stop", (), why=f"{fault.what}, {context.counts[fault.what] + 1} times: a node is not to blame")
    gone = [node for node in context.nodes if node not in context.able]
    worn += [node for node in fault.nodes if node in context.sick and node not in worn and fault.separable]
    bad = list(fault.nodes) if first == "replace" else (worn if then == "replace" else [])
    if not fault.separable and context.counts.get(fault.what, 0) >= policy.same and then == "replace":
        bad = list(fault.nodes)  # the whole group, because the culprit is one of its nodes
    return _replace_nodes(list(dict.fromkeys([*gone, *bad])), set(gone), context, policy)


def ranks_to_rejoin(decision: RecoveryDecision, ranks: Sequence[RankReport], world: int, fruitless: int) -> tuple[int, ...]:
    """The ranks that have died, if they are to be started anew alone: the decision keeps the nodes, others live, none is done, and
    no two rejoins in a row came to no step."""
    dead = tuple(rank.rank for rank in ranks if rank.code is not None)
    alone = decision.action == "retry" and len(ranks) == world and 0 < len(dead) < world and fruitless < FRUITLESS_REJOINS
    return dead if alone and all(rank.code != 0 for rank in ranks) else ()


def _replace_nodes(out: list[str], gone: set[str], context: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision:
    """The next attempt without the nodes `out`; those of them that still work are kept if there are not enough spares."""
    out = [node for node in out if node in context.nodes]
    if not out:
        return RecoveryDecision("retry", context.nodes)
    spares = [node for node in context.spares if node not in context.nodes]
    replaced = dict(zip([*(one for one in out if one in gone), *(one for one in out if one not in gone)], spares, strict=False))
    lacking = [node for node in out if node not in replaced and node in gone]
    nodes = tuple(replaced.get(node, node) for node in context.nodes if node not in lacking)
    if lacking and not (policy.shrink and nodes):
        return RecoveryDecision("stop", (), why=f"no spare for {', '.join(lacking)}", out_of_nodes=True)
    action: Action = "shrink" if lacking else "replace" if replaced else "retry"
    return RecoveryDecision(
        action, nodes, tuple(dict.fromkeys([*replaced, *lacking])), "" if replaced or lacking else "no spare is ready"
    )


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
