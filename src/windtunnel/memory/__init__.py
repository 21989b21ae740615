"""From a plan to bytes: the memory of the fullest GPU of every pipeline stage, over time, and whether it fits.

Names are imported on first use.
"""

from __future__ import annotations

import lazy_loader

from windtunnel.base.lazy import functions_before_packages

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

functions_before_packages(__name__, ("over_time", "replay", "snapshot", "why"))
