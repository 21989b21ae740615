"""The main path from a job to a prediction. Names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.predict.prediction import KernelRow, Prediction, Span
    from windtunnel.predict.step import predict

NETWORKS = ("closed", "flow", "packet")
"""Fidelities of a step: closed form; fluid flows on the link graph; packets on it."""

_HOME = {"KernelRow": "prediction", "Prediction": "prediction", "Span": "prediction", "predict": "step"}

__all__ = ["NETWORKS", "KernelRow", "Prediction", "Span", "predict"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
