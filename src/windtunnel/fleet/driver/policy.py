"""What is done about a fault: a function of the fault and of where the job stands, without clock or chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windtunnel.fleet.driver.snapshot import DetectedFault
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
    "agent-lost": ("none", "none"),
    "slow": ("none", "none"),
    "planned": ("replace", "replace"),
}
"""By class: what is done at first, and from the fault on that is one too many for its node (replace) or for the job (stop)."""


NOT_OF_THE_PROGRAM = ("node-lost", "traffic-gone", "hang", "agent-lost", "slow", "planned")
"""Faults that a program which fails before its first step does not make."""


@dataclass(frozen=True)
class RecoveryPolicy:
    """`retries`: restarts in a row without `steady` seconds of training between them; `same`: faults of one class on one node,
    or of a class that the program itself makes, until it is not tried again in the same way; `fruitless`: attempts in a row
    that end before their first step until the program is to blame; `shrink`: whether fewer nodes will do; `tests`: self-tests
    of a spare and of a suspect, with their options; `fresh`: seconds after which a spare is tested again before it is used, as one
    that idles breaks unseen; `after`: whether a suspect is tested before it goes on.
    """

    retries: int = 10
    same: int = 2
    fruitless: int = 3
    shrink: bool = False
    steady: float = 600.0
    tests: tuple[tuple[str, ...], ...] = ()
    fresh: float = 3600.0
    after: bool = False
    test_seconds: float = 60.0
    actions: Mapping[str, tuple[Action, Action]] = field(default_factory=lambda: dict(ACTIONS_BY_FAULT))


@dataclass(frozen=True)
class RecoveryContext:
    """Where a job stands. `nodes`: those that it runs on; `able`: which of them can be used; `spares`: tested ones; `restarts`:
    in a row; `counts`: faults so far by "class@node" and by "class". `fruitless`: attempts in a row without a step, the last
    one included.
    """

    nodes: tuple[str, ...]
    able: frozenset[str]
    spares: tuple[str, ...]
    restarts: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    fruitless: int = 0


@dataclass(frozen=True)
class RecoveryDecision:
    """`nodes`: those of the next attempt, in the order of their ranks; `evict`: those that are blocked from now on."""

    action: Action
    nodes: tuple[str, ...]
    evict: tuple[str, ...] = ()
    why: str = ""


def decide(fault: DetectedFault, context: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision:
    """Never more restarts in a row than the policy has; never a node that is not able."""
    first, then = policy.actions[fault.what]
    if fault.what not in NOT_OF_THE_PROGRAM and context.fruitless >= policy.fruitless:
        return RecoveryDecision("stop", (), why=f"{context.fruitless} attempts in a row ended before their first step")
    worn = [node for node in fault.nodes if context.counts.get(f"{fault.what}@{node}", 0) >= policy.same]
    if first == "none":
        return RecoveryDecision("none", context.nodes)
    if context.restarts >= policy.retries:
        return RecoveryDecision(
            "stop", (), why=f"{context.restarts} restarts in a row, and no {policy.steady:g} s of training between them"
        )
    if then == "stop" and context.counts.get(fault.what, 0) >= policy.same:
        return RecoveryDecision(
            "stop", (), why=f"{fault.what} for the {context.counts[fault.what] + 1}th time: a node is not to blame"
        )
    gone = [node for node in context.nodes if node not in context.able]
    bad = list(fault.nodes) if first == "replace" else (worn if then == "replace" else [])
    if not fault.separable and context.counts.get(fault.what, 0) >= policy.same and then == "replace":
        bad = list(fault.nodes)  # the whole group: the culprit is one of it
    return _replace_nodes(list(dict.fromkeys([*gone, *bad])), set(gone), context, policy)


def _replace_nodes(out: list[str], gone: set[str], context: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision:
    """The next attempt without `out`; those that are able come back where spares lack."""
    out = [node for node in out if node in context.nodes]
    if not out:
        return RecoveryDecision("retry", context.nodes)
    spares = [node for node in context.spares if node not in context.nodes]
    replaced = dict(zip([*(one for one in out if one in gone), *(one for one in out if one not in gone)], spares, strict=False))
    lacking = [node for node in out if node not in replaced and node in gone]
    nodes = tuple(replaced.get(node, node) for node in context.nodes if node not in lacking)
    if lacking and not (policy.shrink and nodes):
        return RecoveryDecision("stop", (), why=f"no spare for {', '.join(lacking)}")
    action: Action = "shrink" if lacking else "replace" if replaced else "retry"
    return RecoveryDecision(
        action, nodes, tuple(dict.fromkeys([*replaced, *lacking])), "" if replaced or lacking else "no spare is ready"
    )
