"""Any PyTorch module as a graph model: exported on tensors without storage, its kernels read from the joint graph of autograd."""

from windtunnel.formats.jobs.pytorch.importer import from_module, import_torch

__all__ = ["from_module", "import_torch"]
