"""Runs a trace graph on a cluster: its dependencies, streams and groups as written, its calls over our network.

Names are imported on first use: SimAI's own arithmetic needs neither a cluster nor a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.replay.options import ReplayOptions
    from windtunnel.replay.result import ReplayResult
    from windtunnel.replay.run import replay

_HOME = {"ReplayOptions": "options", "ReplayResult": "result", "replay": "run"}

__all__ = ["ReplayOptions", "ReplayResult", "replay"]

__getattr__ = lazy(__name__, _HOME)
