"""A package's public names, each imported on first use, so that importing the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`: a name is looked up in `home`, its module is imported, and the package keeps the value.

    `home`: public name -> module below the package, or "module:name" where the module calls it by another name.
    The function raises AttributeError for a name that is not in `home`.
    """

    def find_name(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = home[name].partition(":")
        value = getattr(import_module(f"{package}.{module}"), attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    return find_name
