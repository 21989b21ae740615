"""What the keys of a breakdown mean to a reader: their group, their words, their colour.

A breakdown's keys are lower-case words joined by `_` (`memory_bound`, `tensor_parallel`); groups are found from those words, so
that a new kernel class or axis shows up in every picture without a change here. Communication in a breakdown is the exposed part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.predict.prediction import KernelRow

COMPUTE, RECOMPUTE, OPTIMIZER, COMMUNICATION, BUBBLE, WAITING, HOST, DATA, OTHER = (
    "compute",
    "recompute",
    "optimizer",
    "communication",
    "bubble",
    "waiting",
    "host",
    "data",
    "other",
)
GROUPS = (COMPUTE, RECOMPUTE, OPTIMIZER, COMMUNICATION, BUBBLE, WAITING, HOST, DATA, OTHER)

_WORDS: tuple[tuple[str, frozenset[str]], ...] = (
    (BUBBLE, frozenset({"bubble", "idle"})),
    (WAITING, frozenset({"stages", "slowest", "slower", "imbalance", "straggler", "wait", "waiting"})),
    (HOST, frozenset({"host", "launch"})),
    (DATA, frozenset({"data", "dataloader", "checkpoint", "storage", "loading"})),
    (
        COMMUNICATION,
        frozenset(
            {
                "exposed",
                "comm",
                "communication",
                "collective",
                "collectives",
                "send",
                "recv",
                "p2p",
                "pp",
                "tp",
                "cp",
                "ep",
                "dp",
                "shard",
                "replica",
                "world",
                "transfer",
                "network",
                "sync",
                "tensor",
                "context",
                "expert",
                "offload",
                "fetch",
                "gather",
                "gradient",
                "pipeline",
                "overlap",
                "receive",
                "reduce",
                "tied",
            }
        ),
    ),
    (RECOMPUTE, frozenset({"recompute", "recomputation"})),
    (OPTIMIZER, frozenset({"optimizer", "update"})),
    (
        COMPUTE,
        frozenset(
            {
                "compute",
                "gemm",
                "grouped",
                "attention",
                "matmul",
                "memory",
                "norm",
                "elementwise",
                "softmax",
                "cross",
                "entropy",
                "embedding",
                "permute",
                "copy",
                "forward",
                "backward",
                "dgrad",
                "wgrad",
                "kernel",
                "kernels",
                "mlp",
            }
        ),
    ),
)

COLOUR = {
    COMPUTE: "#3b82f6",
    RECOMPUTE: "#8b5cf6",
    OPTIMIZER: "#14b8a6",
    COMMUNICATION: "#f97316",
    BUBBLE: "#94a3b8",
    WAITING: "#a16207",
    HOST: "#ec4899",
    DATA: "#eab308",
    OTHER: "#64748b",
}
"""One colour a group, the same in the terminal and on the page; both read on white and on black."""

_LABELS = {
    "matmul": "matrix multiplication",
    "memory_bound": "memory-bound kernels",
    "other_stages": "waiting for other stages",
    "slower_ranks": "waiting for slower ranks",
    "slowest_gpu": "waiting for the slowest GPU",
    "overlap_slowdown": "slowdown by overlapped calls",
    "bubble": "pipeline bubble",
    "step_sync": "step synchronisation",
    "gradient_reduce": "gradient reduction",
    "parameter_gather": "parameter gathering",
    "recompute": "recomputation",
    "offload": "copies to and from memory beside the GPU",
    "cpu_update": "update by the CPU",
}
_AXES = {
    "tp": "tp",
    "tensor": "tp",
    "cp": "cp",
    "context": "cp",
    "ep": "ep",
    "expert": "ep",
    "pp": "pp",
    "transfer": "pp",
    "dp": "dp",
    "gradient": "dp",
    "shard": "shard",
    "gather": "shard",
    "parameter": "shard",
    "replica": "dp",
    "world": "world",
    "sync": "world",
}
MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "workspace", "context", "fragmentation")
MEMORY_COLOUR = dict(
    zip(
        MEMORY_PARTS,
        ("#3b82f6", "#8b5cf6", "#14b8a6", "#f97316", "#ec4899", "#eab308", "#84cc16", "#64748b", "#94a3b8"),
        strict=True,
    )
)


@dataclass(frozen=True)
class Part:
    """One part of a step: `key` of the breakdown, `label` for people, `seconds`, `share` of the step (0 to 1)."""

    key: str
    group: str
    label: str
    seconds: float
    share: float


def each_of(row: KernelRow) -> float:
    """Seconds of one launch: `count` counts launches, while `seconds_each` is one execution with all of its launches."""
    return row.seconds_total / row.count if row.count else 0.0


def words(key: str) -> tuple[str, ...]:
    """Lower-case words of a key."""
    return tuple(w for w in re.split(r"[^a-z0-9]+", key.lower()) if w)


def group_of(key: str) -> str:
    """Group of a breakdown key or of a span's category."""
    found = set(words(key))
    for group, known in _WORDS:
        if found & known:
            return group
    return OTHER


def axis_of(key: str) -> str:
    """Axis that a communication key or a collective's name speaks of (`tensor_parallel` gives `tp`), or an empty string."""
    return next((_AXES[w] for w in words(key) if w in _AXES), "")


def label_of(key: str) -> str:
    """A key in words: `memory_bound` gives `memory-bound kernels`, an unknown key its own words."""
    bare = key.removeprefix("exposed_")
    told = _LABELS.get(bare, " ".join(words(bare)))
    return told if bare == key else f"exposed {told}"


def parts_of(breakdown: Mapping[str, float], step: float) -> list[Part]:
    """Parts above zero, grouped in the order of `GROUPS`, largest first within a group."""
    found = [Part(k, group_of(k), label_of(k), v, v / step if step > 0 else 0.0) for k, v in breakdown.items() if v > 0.0]
    return sorted(found, key=lambda p: (GROUPS.index(p.group), -p.seconds, p.key))


def group_sums(breakdown: Mapping[str, float]) -> dict[str, float]:
    """Seconds by group, groups in order, zeros left out."""
    sums = dict.fromkeys(GROUPS, 0.0)
    for key, seconds in breakdown.items():
        sums[group_of(key)] += seconds
    return {g: s for g, s in sums.items() if s > 0.0}
