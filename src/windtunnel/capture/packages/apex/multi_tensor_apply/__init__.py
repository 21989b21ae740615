"""One kernel for lists of tensors."""

from windtunnel.capture.fused import multi_tensor_applier

__all__ = ["multi_tensor_applier"]
