"""Fused optimizers: one kernel for all parameters of a group."""

from windtunnel.capture.fused_optimizers import FusedAdam, FusedSGD

__all__ = ["FusedAdam", "FusedSGD"]
