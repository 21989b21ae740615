"""The main path: job in, prediction out."""

from windtunnel.predict.live import NETWORKS
from windtunnel.predict.prediction import KernelRow, Prediction, Span
from windtunnel.predict.step import predict

__all__ = ["NETWORKS", "KernelRow", "Prediction", "Span", "predict"]
