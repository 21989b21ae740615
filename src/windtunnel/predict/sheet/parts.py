"""Group, label and colour of the keys of a breakdown.

Groups and labels are those of `predict.category`; keys are not parsed. Communication in a breakdown is the exposed part.
"""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.base.dataclasses import dataclass
from windtunnel.predict.category import SPAN_GROUPS, STEP_PARTS, StepGroup
from windtunnel.predict.prediction import KernelRow

COMPUTE, RECOMPUTE, OPTIMIZER, CONTENTION, COMMUNICATION, OFFLOAD, BUBBLE, WAITING, HOST, DATA, OTHER = StepGroup
GROUPS = tuple(StepGroup)

COLOUR = {
    COMPUTE: "#3b82f6",
    RECOMPUTE: "#8b5cf6",
    OPTIMIZER: "#14b8a6",
    CONTENTION: "#1e40af",
    COMMUNICATION: "#f97316",
    OFFLOAD: "#84cc16",
    BUBBLE: "#94a3b8",
    WAITING: "#a16207",
    HOST: "#ec4899",
    DATA: "#eab308",
    OTHER: "#64748b",
}
"""One colour per group, the same in the terminal and on the page; legible on white and on black."""


@dataclass(frozen=True)
class TimedPart:
    """One part of a step: `key` of the breakdown, `label` for people, `seconds`, `share` of the step (0 to 1)."""

    key: str
    group: StepGroup
    label: str
    seconds: float
    share: float


def each_of(row: KernelRow) -> float:
    """Seconds of one launch: `count` counts launches, while `seconds_each` is one execution with all of its launches."""
    return row.seconds_total / row.count if row.count else 0.0


def group_of(key: str) -> StepGroup:
    """Group of a breakdown's key, or of a span's category; OTHER for an unknown one."""
    part = STEP_PARTS.get(key)
    return part.group if part is not None else SPAN_GROUPS.get(key, OTHER)


def axis_of(key: str) -> str:
    """Parallel axis of a breakdown's key (`exposed_tensor_parallel` gives `tp`), or an empty string."""
    return STEP_PARTS[key].axis if key in STEP_PARTS else ""


def label_of(key: str) -> str:
    """Label of a breakdown's key: `memory_bound` gives `memory-bound kernels`; an unknown key stands for itself."""
    return STEP_PARTS[key].label if key in STEP_PARTS else key.replace("_", " ")


def parts_of(breakdown: Mapping[str, float], step: float) -> list[TimedPart]:
    """Parts above zero, grouped in the order of `GROUPS`, largest first within a group."""
    parts = [TimedPart(k, group_of(k), label_of(k), v, v / step if step > 0 else 0.0) for k, v in breakdown.items() if v > 0.0]
    return sorted(parts, key=lambda p: (GROUPS.index(p.group), -p.seconds, p.key))


def group_sums(breakdown: Mapping[str, float]) -> dict[StepGroup, float]:
    """Seconds by group, groups in order, zeros left out."""
    sums = dict.fromkeys(GROUPS, 0.0)
    for key, seconds in breakdown.items():
        sums[group_of(key)] += seconds
    return {g: s for g, s in sums.items() if s > 0.0}
