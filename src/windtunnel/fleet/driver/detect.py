"""What is wrong with a job: one table of rules, read from the top. The first that fits a rank, or the job, names the fault."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from windtunnel.fleet.driver.snapshot import DetectionLimits, NodeSight, SeenFault, Sight
from windtunnel.fleet.wire.messages import RAISED, RankReport
from windtunnel.records.incidents import Class

_SEGFAULTS = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE)
_STALL_STEPS = 5.0
_SETTLED = 30
"""Steps that are seen until their mean is that of a usual step: the first ones warm up, and weigh 0.8 ** 30 then."""


@dataclass(frozen=True)
class RankRule:
    """`evidence` of a rank on its node, empty where the rule does not fit."""

    what: Class
    about: str
    evidence: Callable[[RankReport, NodeSight, Sight, DetectionLimits], str]


@dataclass(frozen=True)
class JobRule:
    """`fault` of a job whose processes all live, or None."""

    what: Class
    about: str
    fault: Callable[[Sight, DetectionLimits], SeenFault | None]


def _pattern(kind: str, ended: bool = True) -> Callable[[RankReport, NodeSight, Sight, DetectionLimits], str]:
    def evidence(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> str:
        if ended and not rank.code:
            return ""
        return next((f"its log says: {one.text}" for one in rank.found if one.kind == kind), "")

    return evidence


def _memory_kill(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> str:
    killed = rank.code == -signal.SIGKILL and node.memory_kills > 0
    return f"SIGKILL, and out-of-memory kills in the cgroup: {node.memory_kills}" if killed else ""


def _segfault(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> str:
    return ended_text(rank) if rank.code in _SEGFAULTS or rank.code in [128 - one for one in _SEGFAULTS] else ""


def _early(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> str:
    if rank.code != 0:
        return ""
    failed = any(other.code and other.ended >= rank.ended for seen in sight.nodes for other in seen.ranks)
    waited = sight.now - rank.ended
    return f"exit status 0 {waited:.1f} s ago while others train" if failed or (sight.running and waited > limits.early) else ""


def _crash(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> str:
    why = next((f"; its log ends in: {one.text}" for one in rank.found if one.kind == RAISED), "")
    return ended_text(rank) + why if rank.code else ""


def _stopped(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> str:
    seconds = node.stopped.get(rank.rank, 0.0)
    return f"its process has been stopped for {seconds:.1f} s" if rank.code is None and seconds >= limits.stopped else ""


def _mute(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> str:
    mute = rank.code is None and rank.silent > limits.mute and node.silent < limits.silent
    return f"its process runs but has sent no heartbeat for {rank.silent:.1f} s" if mute else ""


RANK_RULES: tuple[RankRule, ...] = (
    RankRule("oom", "SIGKILL and an out-of-memory kill in the node's cgroup", _memory_kill),
    RankRule("oom", "ended, and its log has a memory error", _pattern("oom")),
    RankRule("nccl", "ended, and its log has an error of NCCL", _pattern("nccl")),
    RankRule("cuda", "ended, and its log has an error of CUDA", _pattern("cuda")),
    RankRule("storage", "ended, and its log has an error of storage", _pattern("storage")),
    RankRule("data", "ended, and its log has an error of the data", _pattern("data")),
    RankRule("nan", "its log says NaN, whether it ended or still runs", _pattern("nan", ended=False)),
    RankRule("segfault", "SIGSEGV, SIGBUS, SIGILL or SIGFPE", _segfault),
    RankRule("crash", "ended, and its log says that another process has its port", _pattern("port")),
    RankRule("early-exit", "exit status 0 while the others continue to train, or fail because of it", _early),
    RankRule("crash", "another signal, or an exit status that is not 0", _crash),
    RankRule("hang", "its process is stopped", _stopped),
    RankRule("hang", "its process runs, and its ring's beat is silent", _mute),
)


def _agents(sight: Sight, limits: DetectionLimits) -> SeenFault | None:
    gone = [node for node in sight.nodes if node.silent > limits.silent]
    if not gone:
        return None
    ranks = tuple(rank.rank for node in gone for rank in node.ranks)
    silent = max(node.silent for node in gone)
    names = tuple(node.node for node in gone)
    return SeenFault(
        "agent-lost", names, ranks, f"no heartbeat of {', '.join(names[:4])} for {silent:.1f} s", sight.now - silent, sight.now
    )


def _traffic(sight: Sight, limits: DetectionLimits) -> SeenFault | None:
    still = [node for node in sight.nodes if node.traffic_still is not None and node.traffic_still > limits.traffic]
    if not still or sight.still is None or sight.still < limits.traffic / 2:
        return None
    ranks = tuple(rank.rank for node in still for rank in node.ranks)
    seconds = max(node.traffic_still or 0.0 for node in still)
    text = f"its NICs have moved nothing for {seconds:.0f} s, and no rank makes progress"
    return SeenFault("traffic-gone", tuple(node.node for node in still), ranks, text, sight.now - seconds, sight.now)


def _stall(sight: Sight, limits: DetectionLimits) -> SeenFault | None:
    patience = max(limits.stall, _STALL_STEPS * sight.step_seconds)
    if sight.still is None or sight.still <= patience or not sight.running:
        return None
    text = f"all processes are alive, but none has written a record for {sight.still:.1f} s"
    return SeenFault("hang", (), (), text, sight.now - sight.still, sight.now, separable=False)


def _slow(sight: Sight, limits: DetectionLimits) -> SeenFault | None:
    least, most = limits.step
    if sight.steps_seen < _SETTLED or least <= sight.step_seconds <= most:
        return None
    text = f"a step takes {sight.step_seconds:.3g} s; its prediction says {least:.3g} … {most:.3g} s"
    return SeenFault("slow", (), (), text, sight.now, sight.now, separable=False)


JOB_RULES: tuple[JobRule, ...] = (
    JobRule("agent-lost", "no heartbeat of an agent (the engine says whether its node is gone too)", _agents),
    JobRule("traffic-gone", "NICs that moved bytes move none, and no rank makes progress", _traffic),
    JobRule("hang", "no rank writes records, though all processes are alive", _stall),
    JobRule("slow", "steps take longer or shorter than predicted", _slow),
)


def detect(sight: Sight, limits: DetectionLimits) -> SeenFault | None:
    """The fault that `sight` shows, or None. Ranks that end because another one did are no culprits where there is one."""
    named = [
        (rule, rank, node, text) for node in sight.nodes for rank in node.ranks for rule, text in _named(rank, node, sight, limits)
    ]
    culprits = [one for one in named if not _follows(one[1])]
    lost = _agents(sight, limits)
    if named and not culprits and lost is not None:
        return lost
    chosen = culprits or named
    if not chosen:
        return next((fault for rule in JOB_RULES if (fault := rule.fault(sight, limits)) is not None), None)
    order = {rule: number for number, rule in enumerate(RANK_RULES)}
    rule, first, _, text = min(chosen, key=lambda one: (one[0].what == "early-exit", one[1].ended or sight.now, order[one[0]]))
    nodes = tuple(dict.fromkeys(node.node for _, _, node, _ in chosen))
    ranks = tuple(rank.rank for _, rank, _, _ in chosen)
    more = f", and {len(ranks) - 1} more" if len(ranks) > 1 else ""
    began = min((_since(rank, node, sight) for _, rank, node, _ in chosen), default=sight.now)
    if not culprits:
        lines = next((one.text for one in first.found), text)
        why = f"rank {first.rank}{more} ended because of a lost connection, and no peer for another reason: {lines}"
        return SeenFault("link", nodes, ranks, why, began, sight.now, separable=False)
    return SeenFault(rule.what, nodes, ranks, f"rank {first.rank}{more}: {text}", began, sight.now)


def _named(rank: RankReport, node: NodeSight, sight: Sight, limits: DetectionLimits) -> list[tuple[RankRule, str]]:
    for rule in RANK_RULES:
        if text := rule.evidence(rank, node, sight, limits):
            return [(rule, text)]
    return []


def _since(rank: RankReport, node: NodeSight, sight: Sight) -> float:
    """Unix seconds when a rank was last known to be right."""
    if rank.code is not None:
        return rank.ended or sight.now
    return sight.now - max(node.stopped.get(rank.rank, 0.0), rank.silent, 0.0)


def _follows(rank: RankReport) -> bool:
    """Whether a rank ended because a peer did: an exit status or SIGABRT, and nothing in its log but lost connections."""
    return bool(rank.code) and (rank.code or 0) not in (-9, -15) and {one.kind for one in rank.found} - {RAISED} == {"peer"}


def ended_text(rank: RankReport) -> str:
    """How a rank ended, in words."""
    if rank.code is None:
        return "it runs"
    if rank.code >= 0:
        return f"exit status {rank.code}"
    try:
        return signal.Signals(-rank.code).name
    except ValueError:
        return f"signal {-rank.code}"
