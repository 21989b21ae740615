"""What loops of frameworks keep beside weights and moments, as entries of a checkpointer's state."""

from __future__ import annotations

import json
from typing import Any

from windtunnel.fleet.checkpoint.states import RandomState


class JsonState:
    """A value that JSON can hold, saved as text."""

    def __init__(self) -> None:
        self.value: Any = None

    def state_dict(self) -> dict[str, str]:
        """The value as text."""
        return {"json": json.dumps(self.value)}

    def load_state_dict(self, state: dict[str, str]) -> None:
        """Restores the value."""
        self.value = json.loads(state["json"])


class LateRandomState(RandomState):
    """Random numbers that are not restored as they are loaded, but by `restore`: until then a loop draws some to find its place."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] | None = None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps the states for `restore`."""
        self._loaded = state

    def restore(self) -> None:
        """Restores what was loaded last, once; nothing if nothing was."""
        if self._loaded is not None:
            super().load_state_dict(self._loaded)
            self._loaded = None
