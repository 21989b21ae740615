"""Optimizers: bytes of state, and the rows that update the parameters. One optimizer per file."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.base.dataclasses import dataclass
from windtunnel.workload.ops import Op
from windtunnel.workload.optimizers.adam import (
    adafactor_rows,
    adafactor_state,
    adam_rows,
    adam_state,
    lamb_rows,
    sgd_rows,
    sgd_state,
)
from windtunnel.workload.optimizers.muon import muon_rows, muon_state
from windtunnel.workload.optimizers.update import Cut, Held, Matrix, ParameterUpdate


@dataclass(frozen=True)
class Optimizer:
    """Bytes of state beside a master copy; rows after the gradient's norm and clipping; whether it needs the shapes of weights."""

    state: Callable[[ParameterUpdate], float]
    rows: Callable[[ParameterUpdate], list[Op]]
    by_shape: bool = False


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer(adam_state, adam_rows),
    "lamb": Optimizer(adam_state, lamb_rows),
    "sgd": Optimizer(sgd_state, sgd_rows),
    "muon": Optimizer(muon_state, muon_rows, by_shape=True),
    "adafactor": Optimizer(adafactor_state, adafactor_rows, by_shape=True),
}

__all__ = ["OPTIMIZERS", "Cut", "Held", "Matrix", "Optimizer", "ParameterUpdate"]
