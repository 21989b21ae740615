"""From a step to the whole run: failures, recoveries, checkpoints, spare nodes. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.goodput.answer import Goodput, goodput
    from windtunnel.goodput.run import WholeRun, run_of

_HOME = {"Goodput": "answer", "WholeRun": "run", "goodput": "answer", "run_of": "run"}

__all__ = ["Goodput", "WholeRun", "goodput", "run_of"]

__getattr__ = lazy(__name__, _HOME)
