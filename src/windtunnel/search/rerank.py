"""The best plans of a search once more, with another network than the closed form that bounds and proof rest on."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.predict import predict
from windtunnel.search.result import SearchResult

MOST = 10
"""Plans that are predicted again at most."""


def rerank(result: SearchResult, network: str, top: int = MOST) -> SearchResult:
    """The result with the step times of its first plans over `network`: flow or packet."""
    if network == "closed":
        return result
    count = min(top, MOST, len(result.ranked))
    steps = [(place, predict(result.job_of(result.ranked[place]), network).step_time_s) for place in range(count)]
    return replace(result, again=tuple(sorted(steps, key=lambda one: one[1])), network=network)
