"""Calls a function after a module has been imported. Imports nothing of windtunnel, because the start-up hook loads this file
alone.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any


class AfterImport:
    """Import finder that runs before all others, delegates to them, and calls the registered actions after the module has run."""

    def __init__(self, guarded: Callable[..., Callable[..., Any]] = lambda action, **options: action) -> None:
        self._guarded = guarded  # `Fence.hook`: an action that fails must not fail the import
        self._actions: dict[str, list[Callable[[Any], object]]] = {}
        self._finding: set[str] = set()

    def when(self, name: str, action: Callable[[Any], object]) -> None:
        """Calls `action(module)` after the import of `name`, or immediately if it has been imported."""
        action = self._guarded(action, name=f"import of {name}")
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            action(module)
            return
        self._actions.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Removes all actions."""
        self._actions.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec found by the other finders, with a loader that calls the actions; None for all other modules."""
        if name not in self._actions or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        except Exception:  # the import itself reports it
            return None
        finally:
            self._finding.discard(name)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                spec.loader.__dict__.pop("exec_module", None)
                execute(module)
                for action in self._actions.pop(name, []):
                    action(module)

            try:
                spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            except AttributeError:  # a loader with slots: the action cannot run
                return None
        return spec
