"""What a router of requests is, and which there are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.registry import Registry

NOWHERE = math.inf
"""What a replica that takes no requests counts as having."""


class PrefixRecord(Protocol):
    """Who has which blocks of `block` tokens; `sizes`: blocks of each replica."""

    block: int
    sizes: list[int]

    def lengths(self, names: Sequence[int]) -> dict[int, int]:
        """Replica -> blocks at the start of a prompt that it has; those with none are left out."""


@dataclass
class RouterView:
    """What a router knows of replicas: `requests` that are at each, prompt `tokens` of these, both infinite where none may be sent;
    `up`: numbers of those that take requests; `record`: prefixes that each has, None without names."""

    requests: list[float]
    tokens: list[float]
    up: list[int]
    record: PrefixRecord | None = None


class Router(ABC):
    """Chooses a replica for each request."""

    @abstractmethod
    def choose(self, view: RouterView, prompt: int, names: Sequence[int]) -> int:
        """The replica of a request with `prompt` tokens whose blocks have `names`."""


@dataclass(frozen=True)
class RouterKind:
    """How a router is made, with the seed of its draws, at the start of a run; `title`: which replica it takes, in a few words."""

    start: Callable[[int], Router]
    title: str


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
