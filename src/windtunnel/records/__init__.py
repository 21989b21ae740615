"""Kernel datasets, shared by measurement and prediction: the schema, and the file (Parquet or CSV).

Names are imported on first use: graphs of traces and measured runs lie in this room too, and need no dataset.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
