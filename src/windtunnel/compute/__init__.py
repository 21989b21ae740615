"""Device seconds of operators: tile/wave model of matrix products, fused attention, and kernels that move bytes.

Names are imported on first use.
"""

from __future__ import annotations

import lazy_loader

from windtunnel.base.lazy import functions_before_packages

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

functions_before_packages(__name__, ("estimate",))
