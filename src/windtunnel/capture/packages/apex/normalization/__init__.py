"""Fused norms."""

from apex.normalization.fused_layer_norm import FusedLayerNormAffineFunction

__all__ = ["FusedLayerNormAffineFunction"]
