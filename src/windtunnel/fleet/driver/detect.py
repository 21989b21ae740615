"""Fault detection: one table of rules, tried from the top. The first rule that matches a rank, or the job, names the fault.
Snapshot of a job that the fault rules read.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.fleet.findings.failures import EndRow, RankEnd, end_of
from windtunnel.fleet.wire.messages import EXCEPTION_LINE, LogFinding, RankReport
from windtunnel.records.ends import EndKind, parse_end
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


_SEGFAULTS = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE)
_STALL_STEPS = 5.0
_SETTLED = 30
"""Steps until the mean is that of a typical step: the first ones warm up, and weigh 0.8 ** 30 by then."""


@dataclass(frozen=True)
class RankRule:
    """A rule for one rank."""

    what: Class
    about: str
    """Description for people."""
    evidence: Callable[[RankReport, NodeSnapshot, JobSnapshot, DetectionLimits], str]
    """Returns the evidence; empty if the rule does not match."""


@dataclass(frozen=True)
class JobRule:
    """A rule for a job whose processes are all alive."""

    what: Class
    about: str
    """Description for people."""
    fault: Callable[[JobSnapshot, DetectionLimits], DetectedFault | None]
    """Returns the fault, or None."""


_BY_LOG = ("oom", "nccl", "cuda", "storage", "data", "nan")
"""Classes whose evidence is a line of the log, or a count: how the rank ended is said before it."""


def _log_pattern_evidence(kind: str, ended: bool = True) -> Callable[[RankReport, NodeSnapshot, JobSnapshot, DetectionLimits], str]:
    def evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
        if ended and not rank.code:
            return ""
        return next((f"its log says: {one.text}" for one in rank.found if one.kind == kind), "")

    return evidence


def _memory_kill_evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
    killed = rank.code == -signal.SIGKILL and node.memory_kills > 0
    return f"SIGKILL, and out-of-memory kills in the cgroup: {node.memory_kills}" if killed else ""


def _segfault_evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
    return describe_exit(rank) if rank.code in _SEGFAULTS or rank.code in [128 - one for one in _SEGFAULTS] else ""


def _early_exit_evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
    if rank.code != 0:
        return ""
    failed = any(other.code and other.ended >= rank.ended for seen in snapshot.nodes for other in seen.ranks)
    waited = snapshot.now - rank.ended
    if not (failed or (snapshot.running and waited > limits.early)):
        return ""
    rows = [row for row in _end_rows(rank) if row[1] is EndKind.EXIT]
    how, step = (rows[-1][2], f" in step {rows[-1][3]}") if rows else ("exit status 0", "")
    return f"ended with {how}{step}, {waited:.1f} s ago, while others trained"


def _crash_evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
    if not rank.code or _told_end(rank):
        return describe_exit(rank) if rank.code else ""
    why = next((f"; its log ends in: {one.text}" for one in rank.found if one.kind == EXCEPTION_LINE), "")
    return describe_exit(rank) + why


def _lost_save_evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
    if not rank.code:
        return ""
    return next((one.text.partition("LostSaveError: ")[2] for one in rank.found if _is_lost_save(one)), "")


def _is_lost_save(found: LogFinding) -> bool:
    return found.kind == EXCEPTION_LINE and "LostSaveError: " in found.text


def _stopped_evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
    seconds = node.stopped.get(rank.rank, 0.0)
    return f"its process has been stopped for {seconds:.1f} s" if rank.code is None and seconds >= limits.stopped else ""


def _mute_evidence(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits) -> str:
    mute = rank.code is None and rank.silent > limits.mute and node.silent < limits.silent
    return f"its process runs but has sent no heartbeat for {rank.silent:.1f} s" if mute else ""


RANK_RULES: tuple[RankRule, ...] = (
    RankRule("oom", "SIGKILL and an out-of-memory kill in the node's cgroup", _memory_kill_evidence),
    RankRule("checkpoint", "ended because its last save was lost", _lost_save_evidence),
    RankRule("oom", "ended, and its log has a memory error", _log_pattern_evidence("oom")),
    RankRule("nccl", "ended, and its log has an error of NCCL", _log_pattern_evidence("nccl")),
    RankRule("cuda", "ended, and its log has an error of CUDA", _log_pattern_evidence("cuda")),
    RankRule("storage", "ended, and its log has an error of storage", _log_pattern_evidence("storage")),
    RankRule("data", "ended, and its log has an error of the data", _log_pattern_evidence("data")),
    RankRule("nan", "its log says NaN, whether it ended or still runs", _log_pattern_evidence("nan", ended=False)),
    RankRule("segfault", "SIGSEGV, SIGBUS, SIGILL or SIGFPE", _segfault_evidence),
    RankRule("crash", "ended, and its log says that another process has its port", _log_pattern_evidence("port")),
    RankRule("early-exit", "exit status 0 while the others continue to train, or fail because of it", _early_exit_evidence),
    RankRule("crash", "another signal, or an exit status that is not 0", _crash_evidence),
    RankRule("hang", "its process is stopped", _stopped_evidence),
    RankRule("hang", "its process runs, and its ring's beat is silent", _mute_evidence),
)


def _lost_agents_fault(snapshot: JobSnapshot, limits: DetectionLimits) -> DetectedFault | None:
    gone = [node for node in snapshot.nodes if node.silent > limits.silent]
    if not gone:
        return None
    ranks = tuple(rank.rank for node in gone for rank in node.ranks)
    silent = max(node.silent for node in gone)
    names = tuple(node.node for node in gone)
    return DetectedFault(
        "agent-lost",
        names,
        ranks,
        f"no heartbeat of {', '.join(names[:4])} for {silent:.1f} s",
        snapshot.now - silent,
        snapshot.now,
    )


def _traffic_fault(snapshot: JobSnapshot, limits: DetectionLimits) -> DetectedFault | None:
    still = [node for node in snapshot.nodes if node.traffic_still is not None and node.traffic_still > limits.traffic]
    if not still or snapshot.still is None or snapshot.still < limits.traffic / 2:
        return None
    ranks = tuple(rank.rank for node in still for rank in node.ranks)
    seconds = max(node.traffic_still or 0.0 for node in still)
    text = f"its NICs have moved nothing for {seconds:.0f} s, and no rank makes progress"
    return DetectedFault("traffic-gone", tuple(node.node for node in still), ranks, text, snapshot.now - seconds, snapshot.now)


def _stall_fault(snapshot: JobSnapshot, limits: DetectionLimits) -> DetectedFault | None:
    patience = max(limits.stall, _STALL_STEPS * snapshot.step_seconds)
    if snapshot.still is None or snapshot.still <= patience or not snapshot.running:
        return None
    text = f"all processes are alive, but none has written a record for {snapshot.still:.1f} s"
    return DetectedFault("hang", (), (), text, snapshot.now - snapshot.still, snapshot.now, separable=False)


def _slow_fault(snapshot: JobSnapshot, limits: DetectionLimits) -> DetectedFault | None:
    least, most = limits.step
    if snapshot.steps_seen < _SETTLED or least <= snapshot.step_seconds <= most:
        return None
    text = f"a step takes {snapshot.step_seconds:.3g} s; its prediction says {least:.3g} … {most:.3g} s"
    return DetectedFault("slow", (), (), text, snapshot.now, snapshot.now, separable=False)


JOB_RULES: tuple[JobRule, ...] = (
    JobRule("agent-lost", "no heartbeat of an agent (the engine says whether its node is gone too)", _lost_agents_fault),
    JobRule("traffic-gone", "NICs that moved bytes move none, and no rank makes progress", _traffic_fault),
    JobRule("hang", "no rank writes records, though all processes are alive", _stall_fault),
    JobRule("slow", "steps take longer or shorter than predicted", _slow_fault),
)


def detect(snapshot: JobSnapshot, limits: DetectionLimits) -> DetectedFault | None:
    """The fault that `snapshot` shows, or None. Ranks that ended because a peer ended are culprits only if there is no other."""
    matches = [
        (rule, rank, node, text)
        for node in snapshot.nodes
        for rank in node.ranks
        for rule, text in _matching_rule(rank, node, snapshot, limits)
    ]
    culprits = [one for one in matches if not _ended_by_peer(one[1])]
    lost = _lost_agents_fault(snapshot, limits)
    if matches and not culprits and lost is not None:
        return lost
    chosen = culprits or matches
    if not chosen:
        return next((fault for rule in JOB_RULES if (fault := rule.fault(snapshot, limits)) is not None), None)
    order = {rule: number for number, rule in enumerate(RANK_RULES)}
    rule, first, _, text = min(chosen, key=lambda one: (one[0].what == "early-exit", one[1].ended or snapshot.now, order[one[0]]))
    nodes = tuple(dict.fromkeys(node.node for _, _, node, _ in chosen))
    ranks = (first.rank, *(rank.rank for _, rank, _, _ in chosen if rank is not first))
    more = f", and {len(ranks) - 1} more" if len(ranks) > 1 else ""
    if rule.what in _BY_LOG and (told := _told_end(first)) is not None:
        text = f"{told.why}; {text}"
    began = min((_last_good_time(rank, node, snapshot) for _, rank, node, _ in chosen), default=snapshot.now)
    if not culprits:
        lines = next((one.text for one in first.found), text)
        why = f"rank {first.rank}{more} ended because of a lost connection, and no peer for another reason: {lines}"
        return DetectedFault("link", nodes, ranks, why, began, snapshot.now, separable=False)
    return DetectedFault(rule.what, nodes, ranks, f"rank {first.rank}{more}: {text}", began, snapshot.now)


def _matching_rule(
    rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot, limits: DetectionLimits
) -> list[tuple[RankRule, str]]:
    for rule in RANK_RULES:
        if text := rule.evidence(rank, node, snapshot, limits):
            return [(rule, text)]
    return []


def _last_good_time(rank: RankReport, node: NodeSnapshot, snapshot: JobSnapshot) -> float:
    """Unix seconds at which a rank was last known to work."""
    if rank.code is not None:
        return rank.ended or snapshot.now
    return snapshot.now - max(node.stopped.get(rank.rank, 0.0), rank.silent, 0.0)


def _ended_by_peer(rank: RankReport) -> bool:
    """Whether a rank ended because a peer did: an exit status or SIGABRT, and only lost connections in its log."""
    if not rank.code or rank.code in (-9, -15):
        return False
    told = _told_end(rank)
    if told is not None and not told.signalled:
        return told.consequence
    return {one.kind for one in rank.found} - {EXCEPTION_LINE} == {"peer"}


def _end_rows(rank: RankReport) -> list[EndRow]:
    """What the rank's ring says of its end."""
    rows = [(one.unix, parse_end(one.line), one.step) for one in rank.ends]
    return [(unix, *told, step) for unix, told, step in rows if told is not None]


def _told_end(rank: RankReport) -> RankEnd | None:
    """How a rank ended that failed, as its ring says; None if that says nothing."""
    rows = _end_rows(rank)
    told = end_of(rank.rank, rows, None, rank.ended) if rank.code and rows else None
    return told if told is not None and told.why else None


def errors_at_exit(ranks: Iterable[RankReport]) -> dict[int, str]:
    """Exceptions in handlers of `atexit`, by rank: the exit status is 0 all the same."""
    ended = [(rank, end_of(rank.rank, _end_rows(rank), None, rank.ended)) for rank in ranks if rank.code == 0]
    return {rank.rank: f"rank {rank.rank}: {told.why}" for rank, told in ended if told is not None and told.why}


def describe_exit(rank: RankReport) -> str:
    """How a rank ended, as text."""
    if rank.code is None:
        return "it runs"
    if (told := _told_end(rank)) is not None:
        return told.why
    if rank.code >= 0:
        return f"exit status {rank.code}"
    try:
        return signal.Signals(-rank.code).name
    except ValueError:
        return f"signal {-rank.code}"
