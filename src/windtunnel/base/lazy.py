"""Names of a package that `lazy_loader` imports on first use, from the package's stub `__init__.pyi`.

lazy_loader serves as it is, but for two things that this file has. The stub is the only list of names: `import x as y` in it would
publish `x`, so a public name is the name that its module has. And lazy_loader guards a function against a subpackage of its name
only where the function comes from that subpackage; `windtunnel.predict` comes from `windtunnel.api.step`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


class _FunctionsFirst(ModuleType):
    """A package whose functions stay, when a subpackage of the same name is imported."""

    _functions: frozenset[str] = frozenset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._functions and value is sys.modules.get(f"{self.__name__}.{name}"):
            return  # the import of a subpackage sets it; `from package.name import x` and sys.modules have it all the same
        super().__setattr__(name, value)


def functions_before_packages(package: str, names: Iterable[str]) -> None:
    """Makes the attributes `names` of `package` its functions, whatever is imported; call it after `lazy_loader.attach_stub`."""
    module = sys.modules[package]
    module.__class__ = _FunctionsFirst
    module.__dict__["_functions"] = frozenset(names)
