"""Routers: which replica a request goes to. Each is a small class and a line of `serving.routing.ROUTERS`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from windtunnel.serving.routing import Router, RouterKind, RouterView


def _least(values: list[float], start: int) -> int:
    """The place of the least value, the first behind `start` of equal ones: idle replicas take turns."""
    least = min(values)
    try:
        return values.index(least, start)
    except ValueError:
        return values.index(least)


class RoundRobin(Router):
    """In turn, as a plain load balancer."""

    def __init__(self, seed: int = 0) -> None:
        self.turn = -1

    def choose(self, view: RouterView, prompt: int, names: Sequence[int]) -> int:
        self.turn += 1
        return view.up[self.turn % len(view.up)]


class RandomRouter(Router):
    """Any, with the same chance: each replica of a Poisson stream has one of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.draws = Random(seed)

    def choose(self, view: RouterView, prompt: int, names: Sequence[int]) -> int:
        return view.up[int(self.draws.random() * len(view.up))]


class LeastRequests(Router):
    """The replica with the fewest requests."""

    def __init__(self, seed: int = 0) -> None:
        self.last = 0

    def choose(self, view: RouterView, prompt: int, names: Sequence[int]) -> int:
        self.last = _least(view.requests, self.last + 1)
        return self.last


class LeastTokens(Router):
    """The replica whose requests have the fewest tokens."""

    def __init__(self, seed: int = 0) -> None:
        self.last = 0

    def choose(self, view: RouterView, prompt: int, names: Sequence[int]) -> int:
        self.last = _least(view.tokens, self.last + 1)
        return self.last


class CacheAware(Router):
    """SGLang's and vLLM's routers (`cache_aware`): the replica with the longest shared prefix where that is more than THRESHOLD of
    the prompt, else the one with the smallest record; the fewest requests where replicas are out of balance. Defaults of SGLang's
    gateway 0.3.1 and vLLM's router 0.1.15 (docs.gpustack.ai, model deployment routing)."""

    THRESHOLD, ABSOLUTE, RELATIVE = 0.3, 64, 1.5

    def __init__(self, seed: int = 0) -> None:
        self.fallback = LeastRequests(seed)

    def choose(self, view: RouterView, prompt: int, names: Sequence[int]) -> int:
        record = view.record
        if record is None or not names:
            return self.fallback.choose(view, prompt, names)
        loads = [view.requests[number] for number in view.up]
        most, least = max(loads), min(loads)
        if most - least > self.ABSOLUTE and most > self.RELATIVE * least:
            return self.fallback.choose(view, prompt, names)
        found = record.lengths(names)
        best = max(view.up, key=lambda number: (found.get(number, 0), -view.requests[number]))
        if found.get(best, 0) * record.block > self.THRESHOLD * prompt:
            return best
        return min(view.up, key=lambda number: (record.sizes[number], view.requests[number]))


class KvAware(Router):
    """Dynamo's KV router: the least of prompt blocks that have to be computed there, times WEIGHT, and blocks that would be active
    (docs.nvidia.com/dynamo, Router Design; both weights at their default, temperature 0)."""

    WEIGHT = 1.0

    def __init__(self, seed: int = 0) -> None:
        self.fallback = LeastTokens(seed)

    def choose(self, view: RouterView, prompt: int, names: Sequence[int]) -> int:
        record = view.record
        if record is None or not names:
            return self.fallback.choose(view, prompt, names)
        found, block = record.lengths(names), record.block

        def cost(number: int) -> float:
            new = max(0.0, prompt / block - found.get(number, 0))
            return self.WEIGHT * new + (view.tokens[number] + prompt) / block

        return min(view.up, key=cost)


ROUND_ROBIN = RouterKind(RoundRobin, "in turn")
RANDOM = RouterKind(RandomRouter, "at random")
LEAST_REQUESTS = RouterKind(LeastRequests, "the fewest requests")
LEAST_TOKENS = RouterKind(LeastTokens, "the fewest tokens")
CACHE_AWARE = RouterKind(CacheAware, "the longest shared prefix (SGLang's and vLLM's routers)")
KV_AWARE = RouterKind(KvAware, "the fewest blocks to compute and to hold (Dynamo's KV router)")
