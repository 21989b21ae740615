"""Validation: published measurements compared with predictions. Names are imported on first use."""

from __future__ import annotations

import lazy_loader

from windtunnel.base.lazy import functions_before_packages

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

functions_before_packages(__name__, ("validate",))
