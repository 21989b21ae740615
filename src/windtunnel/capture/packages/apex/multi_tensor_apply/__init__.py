"""One kernel for lists of tensors."""

from windtunnel.capture.fused_optimizers import multi_tensor_applier

__all__ = ["multi_tensor_applier"]
