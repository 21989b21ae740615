"""Replaces attributes of other modules and classes, and restores them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windtunnel.fleet.fence import Fence

_ABSENT = object()


class Patches:
    """Replaced attributes, in order. `restore` leaves each owner as it was. Functions are replaced by ones of `fence`."""

    def __init__(self, fence: Fence | None = None) -> None:
        self.fence = fence or Fence()
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._removals: list[Callable[[], object]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Sets owner.name to make(previous value). False, without effect, if the owner has no such attribute."""
        before = vars(owner).get(name, _ABSENT)
        original = before if before is not _ABSENT else getattr(owner, name, _ABSENT)
        if original is _ABSENT:
            return False
        where = f"{getattr(owner, '__name__', owner)}.{name}"
        replacement = self.fence.wrap(original, make, where) if callable(original) else make(original)
        for copied in ("__name__", "__qualname__", "__doc__", "__module__"):
            if hasattr(original, copied) and hasattr(replacement, "__dict__"):
                setattr(replacement, copied, getattr(original, copied))
        if hasattr(replacement, "__dict__"):
            replacement.__wrapped__ = original
        setattr(owner, name, replacement)
        self._done.append((owner, name, before, replacement))
        return True

    def on_restore(self, remove: Callable[[], object]) -> None:
        """Registers a function that `restore` calls, for hooks that others keep in lists."""
        self._removals.append(remove)

    def restore(self) -> None:
        """Restores everything, last first. An attribute that others have replaced since is left alone: it calls our wrapper, which
        then only passes the call on.
        """
        while self._removals:
            self._removals.pop()()
        while self._done:
            owner, name, before, replacement = self._done.pop()
            if vars(owner).get(name) is not replacement:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
