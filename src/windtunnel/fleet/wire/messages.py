"""All messages between driver and agents. The types are the schema: what does not fit is refused when it is read.

Every command carries the driver's fencing number: an agent obeys no number below the highest that it has seen.
"""

from __future__ import annotations

import msgspec

VERSION = 1

EXCEPTION_LINE = "raised"
"""The kind of the last line of a Python traceback, whatever the error. It says why a rank crashed, and decides nothing."""


class LogFinding(msgspec.Struct, frozen=True):
    """An error pattern in a rank's log: its kind (`agent.patterns`) and the line."""

    kind: str
    text: str


class RankReport(msgspec.Struct, frozen=True):
    """A rank's process. `code`: exit status, negative a signal, None while it runs; `process`: its state letter of /proc; `silent`:
    seconds since its ring beat, -1 without a ring; `progress`: records written; `step`: of the ring, since the attempt began."""

    rank: int
    pid: int
    code: int | None = None
    process: str = "R"
    silent: float = -1.0
    progress: int = 0
    step: int = -1
    ended: float = 0.0  # unix seconds
    loaded: int = -1  # step of the checkpoint that it loaded in this attempt
    load_seconds: float = 0.0
    found: tuple[LogFinding, ...] = ()


class PendingReport(msgspec.Struct, frozen=True):
    """A call that a rank began and has not finished; the fields of `findings.hang.PendingCall`."""

    group: str
    number: int
    comm: int = 0
    name: str = ""
    peer: int = -1
    sends: bool = False


class RankStatus(msgspec.Struct, frozen=True):
    """What a rank is in, by its ring: the fields of `findings.hang.RankState`."""

    rank: int
    pending: tuple[PendingReport, ...] = ()
    begun: dict[str, int] = {}
    finished: dict[str, int] = {}
    silent: float = 0.0
    process: str = ""
    doing: str = ""
    since: float = -1.0


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first message of an agent. `attempt`: of the ranks that its node has, -1 without any; `addresses`: of its ports."""

    token: str
    node: str
    host: str
    pid: int
    attempt: int = -1
    ranks: tuple[RankReport, ...] = ()
    version: int = VERSION
    addresses: tuple[str, ...] = ()


class AgentBeat(msgspec.Struct, frozen=True, tag=True):
    """An agent's heartbeat, each second, and at once when a rank ends. `traffic`: bytes that the node's NICs moved so far, -1
    unknown; `memory_kills`: processes killed for memory so far; `link_drops`: how often its ports lost their link so far."""

    unix: float
    attempt: int = -1
    ranks: tuple[RankReport, ...] = ()
    traffic: int = -1
    memory_kills: int = 0
    warm: bool = False
    link_drops: int = 0


class OrderAnswer(msgspec.Struct, frozen=True, tag=True):
    """To the command `order`. `port`: of a `Pick`; `passed`: of a `RunTest`; `stands`, and `groups` (label → ranks): of an
    `AskRankStatus`."""

    order: int
    refused: str = ""
    address: str = ""
    port: int = 0
    passed: bool | None = None
    seconds: float = 0.0
    why: str = ""
    rank_status: tuple[RankStatus, ...] = msgspec.field(default=(), name="stands")
    groups: dict[str, tuple[int, ...]] = {}


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The driver takes the agent."""

    fence: int


class Warm(msgspec.Struct, frozen=True, tag=True):
    """Import these modules now, so that ranks start with them."""

    fence: int
    order: int
    modules: tuple[str, ...]


class Pick(msgspec.Struct, frozen=True, tag=True):
    """Name a free port for the rendezvous of an attempt."""

    fence: int
    order: int


class StartRanks(msgspec.Struct, frozen=True, tag=True):
    """Start the ranks `first … first + count - 1`. `argv`: the command as a list, no shell reads it; `checkpoint`: a folder for the
    script, or none."""

    fence: int
    order: int
    attempt: int
    argv: tuple[str, ...]
    first: int
    count: int
    world: int
    node_rank: int
    address: str
    port: int
    run: str
    folder: str
    checkpoint: str = ""
    variables: dict[str, str] = {}


class Kill(msgspec.Struct, frozen=True, tag=True):
    """End the ranks of all attempts up to this one: SIGTERM, after `grace` seconds SIGKILL. Answered when they are gone."""

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
    """Say what each rank is in, and which calls it waits in: the job stands still."""

    fence: int
    order: int


class Leave(msgspec.Struct, frozen=True, tag=True):
    """End the ranks and the agent."""

    fence: int
    order: int


FromAgent = Hello | AgentBeat | OrderAnswer
Command = Warm | Pick | StartRanks | Kill | RunTest | AskRankStatus | Leave
FromDriver = Welcome | Command
