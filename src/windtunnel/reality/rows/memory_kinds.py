"""What a row's memory figure counts: which of allocated, reserved and device, and on which stage; from its own words, else as the
framework prints it (`prints_memory` of `catalog/publications/`).

"GB" of PyTorch's counters and of nvidia-smi is 2^30 bytes: both divide by powers of 1,024.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from windtunnel.memory import StageMemory
from windtunnel.memory.walk import block_needs
from windtunnel.reality.rows import publications
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import Job
from windtunnel.workload import build

Part = Literal["allocated", "reserved", "total", "model"]

_WORDS: tuple[tuple[str, Part], ...] = (
    (r"params\+optimizer", "model"),
    (r"reserved", "reserved"),
    (r"alloc|active", "allocated"),
    (r"device|nvidia-smi|vram|total", "total"),
)
"""Words of `mem_kind`, the first that matches; `model`: parameters, gradients, optimizer state and activations."""

_SHARE = re.compile(r"activation memory as % of tensor-parallel baseline = ([\d.]+)")


class MemoryKind(NamedTuple):
    """A field of `StageMemory`, or parts of it; the stages that count; and whether the kind is assumed."""

    part: Part
    stages: Literal["all", "first", "last"]
    assumed: bool


def memory_kind(row: TrainingRow) -> MemoryKind:
    """What the memory figure of `row`, whose framework is the catalogue's, counts."""
    words = (row.mem_kind or "").lower().replace("rank-0", "rank0").replace("rank 0", "rank0")
    stages: Literal["all", "first", "last"] = "first" if "rank0" in words else "last" if "last rank" in words else "all"
    for pattern, part in _WORDS:
        if re.search(pattern, words):
            return MemoryKind(part, stages, False)
    printed = publications.prints_memory()
    kind = printed.get(row.framework or "", printed[""])
    parts: dict[str, Part] = {"allocated": "allocated", "reserved": "reserved", "device": "total"}
    return MemoryKind(parts[kind], stages, True)


def memory_gib(row: TrainingRow) -> float | None:
    """The figure in GiB; None for a row without one."""
    return row.mem_gib or row.mem_gb_printed


def activation_share(row: TrainingRow) -> float | None:
    """Activations in percent of those of the same job under tensor parallelism alone, as Korthikanti et al. 2022 draw them."""
    match = _SHARE.search(row.mem_kind or "")
    return float(match.group(1)) if match else None


def layer_bytes(job: Job) -> float:
    """Bytes that the largest layer of `job` keeps for its backward pass, logits left out."""
    workload = build(job)
    needs = zip(workload.blocks, block_needs(workload), strict=True)
    return max(need.saved for block, need in needs if block.name not in ("embedding", "head"))


def memory_bytes(memory: Sequence[StageMemory], kind: MemoryKind) -> float:
    """Bytes of the fullest stage of those that count."""
    stages = memory[:1] if kind.stages == "first" else memory[-1:] if kind.stages == "last" else memory
    return max(_bytes(stage, kind.part) for stage in stages)


def _bytes(stage: StageMemory, part: Part) -> float:
    if part == "model":
        return float(stage.weights + stage.gradients + stage.optimizer + stage.activations)
    return float(getattr(stage, part))
