"""Runs a trace graph on a cluster: its dependencies, streams and groups as written, its calls over our network."""

from windtunnel.replay.options import ReplayOptions
from windtunnel.replay.result import ReplayResult
from windtunnel.replay.run import replay

__all__ = ["ReplayOptions", "ReplayResult", "replay"]
