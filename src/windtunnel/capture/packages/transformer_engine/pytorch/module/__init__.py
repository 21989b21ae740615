"""What modules share."""

from transformer_engine.pytorch.module import base

__all__ = ["base"]
