"""A package's public names, each imported on first use, so that importing the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from windtunnel.base.errors import explain_missing_module


def lazy(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`: a name is looked up in `home`, its module is imported, and the package keeps the value.

    `home`: public name -> module below the package, or "module:name" where the module calls it by another name.
    The function raises AttributeError for a name that is not in `home`, and NotInstalled for one whose module is in another wheel.
    """

    def found(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = home[name].partition(":")
        try:
            value = getattr(import_module(f"{package}.{module}"), attribute or name)
        except ModuleNotFoundError as error:
            raise explain_missing_module(error) or error from None
        setattr(sys.modules[package], name, value)
        return value

    return found
