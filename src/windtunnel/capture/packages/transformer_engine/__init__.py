"""Stands in for Transformer Engine: its modules with the kernels and calls that they make, of which only shapes are known."""

from transformer_engine import common, pytorch

__version__ = "2.6.0"
__all__ = ["common", "pytorch"]
