"""Fused optimizers."""

from windtunnel.capture.fused import FusedAdam, FusedSGD, multi_tensor_applier, multi_tensor_l2norm, multi_tensor_scale

__all__ = ["FusedAdam", "FusedSGD", "multi_tensor_applier", "multi_tensor_l2norm", "multi_tensor_scale"]
