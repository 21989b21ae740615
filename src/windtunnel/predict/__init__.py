"""The main path: job in, prediction out."""

from windtunnel.predict.step import NETWORKS, predict
from windtunnel.predict.prediction import KernelRow, Prediction, Span, StageMemory

__all__ = ["NETWORKS", "KernelRow", "Prediction", "Span", "StageMemory", "predict"]
