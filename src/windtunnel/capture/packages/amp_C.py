"""Stands in for Apex's extension of kernels for lists of tensors."""

from windtunnel.capture.fused import multi_tensor_l2norm, multi_tensor_scale

__all__ = ["multi_tensor_l2norm", "multi_tensor_scale"]
