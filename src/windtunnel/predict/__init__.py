"""The main path from a job to a prediction. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.predict.prediction import KernelRow, Prediction, Span
    from windtunnel.predict.step import predict

_HOME = {"KernelRow": "prediction", "Prediction": "prediction", "Span": "prediction", "predict": "step"}

__all__ = ["KernelRow", "Prediction", "Span", "predict"]

__getattr__ = lazy(__name__, _HOME)
