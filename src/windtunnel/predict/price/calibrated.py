"""A job's calibration on the seconds of its rows and calls."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.spec.calibration import Calibration
from windtunnel.workload import Axis, Kind
from windtunnel.workload.ops import OpTable

CLASS_OF_KIND: dict[Kind, str] = {
    Kind.GEMM: "gemm",
    Kind.GROUPED_GEMM: "grouped_gemm",
    Kind.ATTENTION: "attention",
    Kind.ATTENTION_BACKWARD: "attention",
    Kind.SCAN: "scan",
    Kind.NORM: "norm",
    Kind.CROSS_ENTROPY: "loss",
    Kind.OPTIMIZER: "optimizer",
}
"""Fields of `KernelFactors`; kinds that are not here are elementwise."""

ELEMENTWISE = "elementwise"

AXIS_GROUPS: dict[Axis, str] = {
    Axis.TP: "tp",
    Axis.ETP: "tp",
    Axis.CP: "cp",
    Axis.CP_HEADS: "cp",
    Axis.CP_RING: "cp",
    Axis.EP: "ep",
    Axis.PP: "pp",
    Axis.WORLD: "world",
    Axis.EMBEDDING: "world",
}
"""Fields of `CallFactors`; axes that are not here are data-parallel."""

PREFIX = "windtunnel::"
"""Begin of the names of predicted kernels in traces."""


def kernel_name(kind: int, label: str) -> str:
    """The name of a predicted kernel in a trace: `windtunnel::CLASS::LABEL`, so that a reader knows its class."""
    return f"{PREFIX}{class_of_kind(kind)}::{label}"


def class_of_kind(kind: int) -> str:
    """The class of a kernel that a calibration's factor holds for."""
    return CLASS_OF_KIND.get(Kind(kind), ELEMENTWISE)


def axis_group(axis: Axis) -> str:
    """The group of axes that a calibration's factor holds for."""
    return AXIS_GROUPS.get(axis, "dp")


def kernel_factors(ops: OpTable, calibration: Calibration) -> Floats:
    """The factor of every row [rows]; 1 for calls."""
    by_kind = np.array([1.0 if kind is Kind.COMM else getattr(calibration.kernels, class_of_kind(kind)) for kind in Kind])
    return np.asarray(by_kind[ops.kind], np.float64)


def call_factor(axis: Axis, calibration: Calibration | None) -> float:
    """The factor of calls over an axis."""
    factor: float = 1.0 if calibration is None else getattr(calibration.calls, axis_group(axis))
    return factor
