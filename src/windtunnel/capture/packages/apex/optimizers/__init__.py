"""Fused optimizers: one kernel for all parameters of a group."""

from windtunnel.capture.fused import FusedAdam, FusedSGD

__all__ = ["FusedAdam", "FusedSGD"]
