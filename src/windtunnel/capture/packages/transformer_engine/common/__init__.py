"""What is common to all frameworks."""

from transformer_engine.common import recipe

__all__ = ["recipe"]
