"""windtunnel: how long a training step takes, whether it fits, where the time goes, before the cluster exists.

    import windtunnel as wt

    job = wt.load("megascale-175b-12288", ["plan.tp=4"])
    p = wt.predict(job)
    p.report()

Every verb of the command line is a function, and every group of verbs a module with functions: docs/python.md lists them. Names are
imported on first use, so that `import windtunnel` costs nothing; `__init__.pyi` is their list.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from windtunnel.base.errors import explain_missing_module
from windtunnel.base.lazy import functions_before_packages
from windtunnel.base.version import __version__

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> Any:
    """A public name, imported on first use, or the function of a verb that another package adds. NotInstalled for one of the
    simulator where windtunnel-fleet is installed alone."""
    try:
        return _import_name(name)
    except ModuleNotFoundError as error:
        raise explain_missing_module(error) or error from None
    except AttributeError:
        from windtunnel.base.verbs import added_verbs

        verb = next((verb for verb in added_verbs().values() if verb.public_name == name), None)
        if verb is None:
            raise
        return verb.answers


functions_before_packages(__name__, ("calibrate", "capture", "catalog", "goodput", "memory", "predict", "replay", "search"))
