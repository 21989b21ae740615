"""A step of reinforcement learning: rollout, log-probabilities, update, weights to the rollout. Names are imported on first use."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
