"""Measures the kernels and layers of a job on a GPU or a CPU into datasets, and reads these: `windtunnel profile` as functions.

Names are imported on first use. Published measurements become datasets by `windtunnel.read_kernel_times`, and datasets become
kernel models by `windtunnel.fit.kernels` and `windtunnel.fit.transfer`.
"""

from __future__ import annotations

import lazy_loader

from windtunnel.base.lazy import functions_before_packages

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

functions_before_packages(__name__, ("gains", "run", "sweep"))
