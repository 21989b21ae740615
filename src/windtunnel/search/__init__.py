"""From one job to better ones: a first plan for a model, priced advice, changes that make a job fit. Names are imported on first
use."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
