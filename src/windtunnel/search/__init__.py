"""From a model and a machine to a plan. Today: a first plan that fits, found by a stated rule."""

from windtunnel.search.start import START_TOKENS, Start, start

__all__ = ["START_TOKENS", "Start", "start"]
