"""Operator -> seconds: tile/wave model of matrix products, fused attention, and kernels that move bytes."""

from windtunnel.compute.describe import describe
from windtunnel.compute.estimate import Estimate, estimate
from windtunnel.compute.kernels import PROVENANCES, Provenance
from windtunnel.compute.training import Factors, TrainingFactor

__all__ = ["PROVENANCES", "Estimate", "Factors", "Provenance", "TrainingFactor", "describe", "estimate"]
