"""Routers: which replica a request goes to. Each is a small class and a line of ROUTERS."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from windtunnel.base.registry import Registry
from windtunnel.serving.replicas.prefixes import PrefixIndex


@dataclass
class RouterView:
    """What a router knows of replicas: `requests` that are at each, prompt `tokens` of these, both infinite
    where none may be sent; `up`: numbers of those that take requests; `index`: prefixes that each has, None without names."""

    requests: list[float]
    tokens: list[float]
    up: list[int]
    index: PrefixIndex | None = None


class Router(ABC):
    """Chooses a replica for each request."""

    title: ClassVar[str]
    """What it does, in a few words."""

    @abstractmethod
    def choose(self, view: RouterView, prompt: int, names: tuple[int, ...]) -> int:
        """The replica of a request with `prompt` tokens whose blocks have `names`."""


def _least(values: list[float], start: int) -> int:
    """The place of the least value, the first behind `start` of equal ones: idle replicas take turns."""
    least = min(values)
    try:
        return values.index(least, start)
    except ValueError:
        return values.index(least)


class RoundRobin(Router):
    """In turn, as a plain load balancer."""

    title = "in turn"

    def __init__(self, seed: int = 0) -> None:
        self.turn = -1

    def choose(self, view: RouterView, prompt: int, names: tuple[int, ...]) -> int:
        self.turn += 1
        return view.up[self.turn % len(view.up)]


class RandomRouter(Router):
    """Any, with the same chance: each replica of a Poisson stream has one of its own."""

    title = "at random"

    def __init__(self, seed: int = 0) -> None:
        self.draws = Random(seed)

    def choose(self, view: RouterView, prompt: int, names: tuple[int, ...]) -> int:
        return view.up[int(self.draws.random() * len(view.up))]


class LeastRequests(Router):
    """The replica with the fewest requests."""

    title = "the fewest requests"

    def __init__(self, seed: int = 0) -> None:
        self.last = 0

    def choose(self, view: RouterView, prompt: int, names: tuple[int, ...]) -> int:
        self.last = _least(view.requests, self.last + 1)
        return self.last


class LeastTokens(Router):
    """The replica whose requests have the fewest tokens."""

    title = "the fewest tokens"

    def __init__(self, seed: int = 0) -> None:
        self.last = 0

    def choose(self, view: RouterView, prompt: int, names: tuple[int, ...]) -> int:
        self.last = _least(view.tokens, self.last + 1)
        return self.last


class CacheAware(Router):
    """SGLang's and vLLM's routers (`cache_aware`): the replica with the longest shared prefix where that is more than THRESHOLD of
    the prompt, else the one with the smallest record; the fewest requests where replicas are out of balance. Defaults of SGLang's
    gateway 0.3.1 and vLLM's router 0.1.15 (docs.gpustack.ai, model deployment routing)."""

    title = "the longest shared prefix (SGLang's and vLLM's routers)"
    THRESHOLD, ABSOLUTE, RELATIVE = 0.3, 64, 1.5

    def __init__(self, seed: int = 0) -> None:
        self.fallback = LeastRequests()

    def choose(self, view: RouterView, prompt: int, names: tuple[int, ...]) -> int:
        index = view.index
        if index is None or not names:
            return self.fallback.choose(view, prompt, names)
        loads = [view.requests[number] for number in view.up]
        most, least = max(loads), min(loads)
        if most - least > self.ABSOLUTE and most > self.RELATIVE * least:
            return self.fallback.choose(view, prompt, names)
        found = index.lengths(names)
        best = max(view.up, key=lambda number: (found.get(number, 0), -view.requests[number]))
        if found.get(best, 0) * index.block > self.THRESHOLD * prompt:
            return best
        return min(view.up, key=lambda number: (index.sizes[number], view.requests[number]))


class KvAware(Router):
    """Dynamo's KV router: the least of prompt blocks that have to be computed there, times WEIGHT, and blocks that would be active
    (docs.nvidia.com/dynamo, Router Design; both weights at their default, temperature 0)."""

    title = "the fewest blocks to compute and to hold (Dynamo's KV router)"
    WEIGHT = 1.0

    def __init__(self, seed: int = 0) -> None:
        self.fallback = LeastTokens()

    def choose(self, view: RouterView, prompt: int, names: tuple[int, ...]) -> int:
        index = view.index
        if index is None or not names:
            return self.fallback.choose(view, prompt, names)
        found, block = index.lengths(names), index.block

        def cost(number: int) -> float:
            new = max(0.0, prompt / block - found.get(number, 0))
            return self.WEIGHT * new + (view.tokens[number] + prompt) / block

        return min(view.up, key=cost)


@dataclass(frozen=True)
class RouterKind:
    """How a router is made, at the start of a run."""

    make: type[Router] = field(repr=False)

    def start(self, seed: int) -> Router:
        """The router as it starts; `seed` of its draws."""
        return self.make(seed)  # type: ignore[call-arg]


ROUND_ROBIN, RANDOM = RouterKind(RoundRobin), RouterKind(RandomRouter)
LEAST_REQUESTS, LEAST_TOKENS = RouterKind(LeastRequests), RouterKind(LeastTokens)
CACHE_AWARE, KV_AWARE = RouterKind(CacheAware), RouterKind(KvAware)

_MODULE = "serving.replicas.routers"
ROUTERS: Registry[RouterKind] = Registry(
    "routers",
    "router",
    {
        "least-requests": f"{_MODULE}:LEAST_REQUESTS",
        "round-robin": f"{_MODULE}:ROUND_ROBIN",
        "random": f"{_MODULE}:RANDOM",
        "least-tokens": f"{_MODULE}:LEAST_TOKENS",
        "cache-aware": f"{_MODULE}:CACHE_AWARE",
        "kv-aware": f"{_MODULE}:KV_AWARE",
    },
)
"""Routers by name. The first is what one gets who names none."""

NOWHERE = math.inf
"""What a replica that takes no requests counts as having."""
