"""Recovery policy: the action for a fault as a pure function of the fault and the state of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.wire.messages import RankReport
from windtunnel.records.incidents import Action

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
