"""From a step to the whole run: failures, recoveries, checkpoints, spare nodes. Names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.goodput.answer import Goodput, goodput
    from windtunnel.goodput.run import WholeRun, run_of

_HOME = {"Goodput": "answer", "WholeRun": "run", "goodput": "answer", "run_of": "run"}

__all__ = ["Goodput", "WholeRun", "goodput", "run_of"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
