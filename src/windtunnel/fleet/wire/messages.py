"""Messages between driver and agents. The types are the schema: messages that do not fit are rejected when they are decoded.

Every command carries the driver's fencing number; an agent obeys no number below the highest that it has seen.

Commands that an agent refuses from anyone: of stale drivers, with folders outside of the job's, or with malformed argument lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

VERSION = 1

EXCEPTION_LINE = "raised"
"""Kind of the last line of a Python traceback, for any exception. It explains a crash but does not decide the fault's class."""


class LogFinding(msgspec.Struct, frozen=True):
    """An error pattern in a rank's log: its kind (`agent.log_patterns`) and the line."""

    kind: str
    text: str


class EndReport(msgspec.Struct, frozen=True):
    """How a process or a thread of it ended, from its ring."""

    unix: float
    """Unix seconds."""
    line: str
    """As `records.ends.end_line` writes it."""
    step: int = -1


class RankReport(msgspec.Struct, frozen=True):
    """State of a rank's process."""

    rank: int
    pid: int
    code: int | None = None
    """Exit status, negative for a signal; None while it runs."""
    process: str = "R"
    """State letter in /proc."""
    silent: float = -1.0
    """Seconds since the ring's last heartbeat; -1 without a ring."""
    progress: int = 0
    """Records written."""
    step: int = -1
    """Step in the ring, since the attempt began."""
    ended: float = 0.0
    """Unix seconds."""
    loaded: int = -1
    """Step of the checkpoint that it loaded in this attempt."""
    load_seconds: float = 0.0
    found: tuple[LogFinding, ...] = ()
    """Error patterns in its log."""
    ends: tuple[EndReport, ...] = ()
    """Of a process that has ended, if it had a ring."""


class PendingReport(msgspec.Struct, frozen=True):
    """A call that a rank began and has not finished; the fields of `findings.hang.PendingCall`."""

    group: str
    number: int
    comm: int = 0
    name: str = ""
    peer: int = -1
    sends: bool = False


class CallReport(msgspec.Struct, frozen=True, array_like=True):
    """One of the last collectives of a rank."""

    group: str
    number: int
    comm: int
    name: str
    size: int
    """Bytes; -1 unknown."""


class RankStatus(msgspec.Struct, frozen=True):
    """What a rank is doing, from its ring: the fields of `findings.hang.RankState`."""

    rank: int
    pending: tuple[PendingReport, ...] = ()
    begun: dict[str, int] = {}
    finished: dict[str, int] = {}
    silent: float = 0.0
    process: str = ""
    doing: str = ""
    since: float = -1.0
    threads: str = ""
    calls: tuple[CallReport, ...] = ()
    """Its last collectives of each group, to compare ranks with each other."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """First message of an agent."""

    token: str
    node: str
    host: str
    pid: int
    attempt: int = -1
    """Attempt of the ranks on its node; -1 without any."""
    ranks: tuple[RankReport, ...] = ()
    version: int = VERSION
    addresses: tuple[str, ...] = ()
    """Addresses of its ports."""


class AgentBeat(msgspec.Struct, frozen=True, tag=True):
    """Heartbeat of an agent, each second, and immediately when a rank ends."""

    unix: float
    attempt: int = -1
    ranks: tuple[RankReport, ...] = ()
    traffic: int = -1
    """Bytes moved by the node's NICs so far; -1 unknown."""
    memory_kills: int = 0
    """Processes killed for lack of memory so far."""
    warm: bool = False
    """Whether its keeper has imported the script's modules."""
    link_drops: int = 0
    """Number of link losses of its ports so far."""
    gpus: tuple[str, ...] = ()
    """What is wrong with its GPUs, a sentence each."""


class OrderAnswer(msgspec.Struct, frozen=True, tag=True):
    """Answer to the command `order`."""

    order: int
    refused: str = ""
    """Why the command was refused; empty if it was executed."""
    address: str = ""
    port: int = 0
    """For `Pick`."""
    passed: bool | None = None
    """For `RunTest`."""
    seconds: float = 0.0
    why: str = ""
    rank_status: tuple[RankStatus, ...] = msgspec.field(default=(), name="stands")
    """For `AskRankStatus`."""
    groups: dict[str, tuple[int, ...]] = {}
    """For `AskRankStatus`: label → ranks."""


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The driver accepts the agent."""

    fence: int


class Warm(msgspec.Struct, frozen=True, tag=True):
    """Import these modules now, so that ranks start with them."""

    fence: int
    order: int
    modules: tuple[str, ...]


class Pick(msgspec.Struct, frozen=True, tag=True):
    """Choose a free port for the rendezvous of an attempt."""

    fence: int
    order: int


class StartRanks(msgspec.Struct, frozen=True, tag=True):
    """Start the ranks `first … first + count - 1`."""

    fence: int
    order: int
    attempt: int
    argv: tuple[str, ...]
    """The command as a list; no shell interprets it."""
    first: int
    count: int
    world: int
    node_rank: int
    address: str
    port: int
    run: str
    folder: str
    checkpoint: str = ""
    """Checkpoint folder for the script, or empty."""
    variables: dict[str, str] = {}
    rejoin: bool = False
    """Whether ranks that die are started anew alone: the store in which ranks meet is a process of the first node."""
    only: tuple[int, ...] = ()
    """Ranks that have ended and are started anew in this attempt, beside those that run; empty: all, in a new attempt."""


class Kill(msgspec.Struct, frozen=True, tag=True):
    """End the ranks of all attempts up to this one: SIGTERM, and SIGKILL after `grace` seconds. Answered when they have ended."""

    fence: int
    order: int
    attempt: int
    grace: float = 0.0


class RunTest(msgspec.Struct, frozen=True, tag=True):
    """Run a self-test of `fleet.diagnose` for at most `limit` seconds."""

    fence: int
    order: int
    name: str
    options: tuple[str, ...] = ()
    limit: float = 60.0


class AskRankStatus(msgspec.Struct, frozen=True, tag="AskStands"):
    """Report what each rank is doing and its pending calls, because the job is stalled."""

    fence: int
    order: int


class Leave(msgspec.Struct, frozen=True, tag=True):
    """End the ranks and the agent."""

    fence: int
    order: int


FromAgent = Hello | AgentBeat | OrderAnswer
Command = Warm | Pick | StartRanks | Kill | RunTest | AskRankStatus | Leave
FromDriver = Welcome | Command


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEST = re.compile(r"[a-z][a-z0-9-]*")
_FORBIDDEN = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")


def is_inside(path: str, folders: Iterable[str]) -> bool:
    """Whether `path`, with links resolved, is one of `folders` or inside one."""
    if not path or "\0" in path or not Path(path).is_absolute():
        return False
    real = Path(path).resolve()
    return any(real.is_relative_to(Path(folder).resolve()) for folder in folders if folder)


def refusal(command: Command, highest: int, folders: Iterable[str]) -> str:
    """Why an agent that has seen the fencing number `highest` refuses a command; empty if it accepts it."""
    if command.fence < highest:
        return f"a stale driver: its number is {command.fence}, and {highest} has been seen"
    if isinstance(command, StartRanks):
        return _start_refusal(command, tuple(folders))
    if isinstance(command, RunTest) and not _TEST.fullmatch(command.name):
        return f"no name of a self-test: {command.name[:80]!r}"
    return ""


def _start_refusal(command: StartRanks, folders: tuple[str, ...]) -> str:
    if not command.argv or any("\0" in word for word in command.argv) or not command.argv[0]:
        return "a command that is no list of words"
    if not is_inside(command.folder, folders):
        return f"a folder that is not the job's: {command.folder[:200]!r}"
    if command.checkpoint and not is_inside(command.checkpoint, folders):
        return f"a checkpoint folder that is not the job's: {command.checkpoint[:200]!r}"
    if not 0 <= command.first < command.first + command.count <= command.world:
        return f"ranks {command.first} … {command.first + command.count - 1} of {command.world}"
    if any(not command.first <= rank < command.first + command.count for rank in command.only):
        return f"ranks {command.only[:4]} of another node"
    for name, value in command.variables.items():
        if not _VARIABLE.fullmatch(name) or name in _FORBIDDEN or "\0" in value:
            return f"a variable that is not passed on: {name[:80]!r}"
    return ""
