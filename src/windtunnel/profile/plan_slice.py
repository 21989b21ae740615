"""A part of a plan of measurements: what goes into one file, and the kernels of it."""

from __future__ import annotations

import heapq
from typing import Any

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.profile.case import Case, case_of, case_table
from windtunnel.profile.job_cases import job_plan
from windtunnel.profile.kernels import KernelCase

FAMILY_OF = {
    "residual_add": "residual", "rope": "rope", "swiglu": "activation", "gelu": "activation", "squared_relu": "activation",
    **dict.fromkeys(("short_convolution", "query_key_norm", "decay", "gated_norm"), "scan"),
}  # fmt: skip
"""Kernel -> its class, where all of an op are one class of the graph."""

FEW = 3
"""Rows without which there is no curve (`calibrate.kernels.fit.LEAST_CPU`)."""

KINDS = ("layers", "kernels", "collectives", "storage")


@dataclass(frozen=True)
class PlanSlice:
    """One file of a campaign. `classes` and `weights`: kernel classes with what they are worth, the most first; `why`: in words.

    `share`: of the time that is left for this and later slices.
    """

    name: str
    kind: str
    case: Case
    share: float
    why: str
    classes: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    modes: tuple[str, ...] = ("eager",)
    ranks: int = 2
    gradient_bytes: int = 0
    step_bytes: float = 0.0
    """B that a step holds on a device: on a processor as many kernels as move so much are measured in turn; 0: not known."""
    folder: str = ""
    """Where checkpoints and tokens go; empty: the plan's folder. `classes` say which of them: checkpoint, loader."""
    shard_bytes: float = 0.0
    """B of a checkpoint that are a rank's."""
    token_bytes: int = 4
    """B of a token in a data set's file."""
    workers: int = 1
    """Workers that read samples at once."""


def slice_table(part: PlanSlice) -> dict[str, Any]:
    """A slice as plain data."""
    return {**vars(part), "case": case_table(part.case)}


def slice_of(table: Any) -> PlanSlice:
    """Inverse of `slice_table`. ValueError for other data."""
    if table["kind"] not in KINDS:
        raise ValueError("a slice of another kind")
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return PlanSlice(**{**fields, "case": case_of(table["case"])})


def class_of(case: KernelCase) -> str:
    """The class of a kernel, as slices name it."""
    return FAMILY_OF.get(case.name, case.op)


def curve_of(case: KernelCase) -> str:
    """Which of its op's curves a kernel is fitted by: products share one, attention has one a pass, others one each."""
    if case.op in ("gemm", "grouped_gemm"):
        return ""
    return case.phase if case.op == "attention" else case.name


def kernels_of(part: PlanSlice, cuda: bool) -> list[KernelCase]:
    """The kernels of a slice: the first `FEW` of each curve, then curves in turn, as often as their class is worth."""
    weights = dict(zip(part.classes, part.weights, strict=True))
    most = max(weights.values(), default=1.0) or 1.0
    by_curve: dict[tuple[str, str], list[KernelCase]] = {}
    for case in job_plan(part.case, cuda, classes=part.classes):
        for mode in part.modes:
            if mode == "eager" or mode in case.modes and (cuda or mode != "cuda_graph"):
                by_curve.setdefault((class_of(case), curve_of(case)), []).append(replace(case, mode=mode))
    listed = []
    for place, ((name, _), cases) in enumerate(by_curve.items()):
        worth = max(weights.get(name, 0.0) / most, 0.05)
        listed.append([(max(0, number + 1 - FEW) / worth, place, number, case) for number, case in enumerate(cases)])
    return [case for *_, case in heapq.merge(*listed)]
