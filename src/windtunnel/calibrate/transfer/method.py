"""Input and output of a transfer method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.calibrate.transfer import evaluate
from windtunnel.calibrate.transfer.rows import TransferRows
from windtunnel.compute.curves import AttentionCurve, GemmCurve
from windtunnel.compute.transfer.joint import JointCurves
from windtunnel.compute.transfer.law import Sheet, distance
from windtunnel.spec.machine import GPU


@dataclass(frozen=True)
class Relative:
    """A measured GPU: its sheet and its own curves; None or empty where it has no rows of a class. `attention`: of one library."""

    on: Sheet
    gemm: GemmCurve | None
    attention: Mapping[str, AttentionCurve]
    direct: bool = True  # its attention curves are fitted on its own rows

    def seconds(self, kind: str, rows: TransferRows) -> Floats:
        """TransferRows of a class that it `has`, on this GPU by its own curves."""
        if kind == "gemm" and self.gemm is not None:
            return evaluate.gemm(self.gemm, self.on, rows)
        return evaluate.attention(self.attention, self.on, rows)

    def has(self, kind: str) -> bool:
        """Whether it has curves of a class."""
        return self.gemm is not None if kind == "gemm" else bool(self.attention)


@dataclass(frozen=True)
class Known:
    """The knowledge for predicting a GPU: its relatives, and curves shared by them."""

    relatives: Sequence[Relative]
    joint: JointCurves


class Predicted(NamedTuple):
    """Seconds of every row, and the GPUs that they rest on."""

    seconds: Floats
    source: str


class Method(Protocol):
    """TransferRows of a class ("gemm", "attention") on a GPU of which only the data sheet is known."""

    def __call__(self, kind: str, rows: TransferRows, gpu: GPU, known: Known) -> Predicted: ...


def nearest(kind: str, on: Sheet, known: Known) -> Relative:
    """The relative with curves of a class: nearest architecture first, then own rows before borrowed curves, slower, of similar
    power."""

    def order_key(one: Relative) -> tuple[float, bool, float, float, str]:
        a, b = one.on.power, on.power
        power = abs(float(np.log(a / one.on.peak / (b / on.peak)))) if a and b else 0.0
        return distance(one.on.architecture, on.architecture), not one.direct, one.on.peak > on.peak, power, one.on.id

    return min((one for one in known.relatives if one.has(kind)), key=order_key)
