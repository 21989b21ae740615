"""Unequal ranks: what they cost, and which rank waits for which, in words."""

from __future__ import annotations

from windtunnel.predict.prediction import ReplicaClass, UnequalResult
from windtunnel.sheet import numbers as say

MOST = 12
"""Most groups in a table."""


HEADS = ("replicas", "computes", "waits for slower", "in the bubble", "what")


def unequal_sentence(result: UnequalResult, step: float) -> str:
    """One sentence: the cost of unequal ranks, and which ranks the others wait for."""
    base = result.equal_step_time_s
    share = step / base - 1.0 if base > 0.0 else 0.0
    more = f"{say.seconds(abs(step - base))} ({abs(share):.1%}) {'longer' if step >= base else 'shorter'} than with equal ranks"
    spread = ""
    if len(result.steps) > 1:
        shortest, longest = min(s for _, s in result.steps), result.slowest
        spread = f" {len(result.steps)} drawn steps take {say.seconds(shortest)} to {say.seconds(longest)}."
    whom = f" It ends with {result.culprit}." if result.culprit else ""
    return f"A step takes {more}.{whom}{spread}"


def class_cells(one: ReplicaClass, result: UnequalResult) -> list[str]:
    """A row of HEADS."""
    slow = max(range(len(one.slow)), key=lambda s: (one.slow[s], -s))
    what = [f"stage {slow} {one.slow[slow] - 1.0:+.1%}"] if abs(one.slow[slow] - 1.0) > 5e-4 else []
    if len({name for other in result.classes for name in other.gpus}) > 1:
        what += [say.clean(name) for name in dict.fromkeys(one.gpus)]
    if len({other.micro_batches for other in result.classes}) > 1:
        what.append(say.micro_batches(one.micro_batches))
    return [
        one.name,
        say.seconds(max(one.computing_s)),
        say.seconds(max(one.waiting_s)),
        say.seconds(min(one.bubble_s)),
        ", ".join(what),
    ]


def classes_to_list(result: UnequalResult) -> list[ReplicaClass]:
    """Groups to list: the largest one, then those that wait least."""
    first, *rest = result.classes
    return [first, *sorted(rest, key=lambda one: (max(one.waiting_s), one.replicas))[: MOST - 1]]
