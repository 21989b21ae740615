"""windtunnel: how long a training step takes, whether it fits, where the time goes, before the cluster exists.

    import windtunnel as wt

    job = wt.load("megascale-175b-12288", ["plan.tp=4"])
    p = wt.predict(job)
    p.report()

Every verb of the command line is a function, and every group of verbs a module with functions: docs/python.md lists them. Names are
imported on first use, so that `import windtunnel` costs nothing; `__init__.pyi` is their list.
"""

from __future__ import annotations

import lazy_loader

from windtunnel.base.lazy import functions_before_packages

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]

functions_before_packages(__name__, ("calibrate", "catalog", "goodput", "memory", "predict", "replay", "search"))
