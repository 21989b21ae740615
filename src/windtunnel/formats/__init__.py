"""Importers of other tools' job descriptions. Each reports the keys that it ignored and the values that it assumed.

Names are imported on first use: a trace or a workload needs no reader of configurations.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
