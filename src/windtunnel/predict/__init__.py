"""The main path: job in, prediction out."""

from windtunnel.predict.predict import NETWORKS, predict
from windtunnel.predict.prediction import KernelRow, Prediction, Span, StageMemory

__all__ = ["NETWORKS", "KernelRow", "Prediction", "Span", "StageMemory", "predict"]
