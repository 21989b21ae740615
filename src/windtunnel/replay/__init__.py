"""Runs a trace graph on a cluster: its dependencies, streams and groups as written, its calls over our network.

Names are imported on first use: SimAI's own arithmetic needs neither a cluster nor a network.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
