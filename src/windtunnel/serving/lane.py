"""The requests of one lane while they are served: columns by request, who waits, who runs, the cache."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.serving.cache import PagedCache, names_of
from windtunnel.serving.load import ServeLoad

BEYOND = 1 << 30
"""Passes that need no limit."""


@dataclass(frozen=True)
class ServeStep:
    """One forward pass: `ids` of requests and how many tokens each computes."""

    ids: Int64s
    counts: Int64s


@dataclass
class Lane:
    """State of a lane. `computed[r]`: tokens of r in the cache; `emitted[r]`: output tokens so far. A request needs its prompt and
    what it has emitted in the cache; each pass that completes these emits one token more. `brought[r]`: tokens whose cache came
    from elsewhere, until r is preempted."""

    load: ServeLoad
    cache: PagedCache
    waiting: deque[int] = field(default_factory=deque)
    running: list[int] = field(default_factory=list)
    computed: Int64s = field(init=False)
    emitted: Int64s = field(init=False)
    brought: Int64s = field(init=False)
    hits: int = 0
    preempted: int = 0
    recomputed: int = 0
    _names: dict[int, list[tuple[int, int]]] = field(default_factory=dict, repr=False)
    _kept: set[int] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        count = len(self.load)
        self.computed, self.emitted, self.brought = (np.zeros(count, np.int64) for _ in range(3))

    def tokens(self, request: int) -> int:
        """Prompt and emitted tokens of a request."""
        return int(self.load.prompt[request] + self.emitted[request])

    def tokens_left(self, request: int) -> int:
        """Tokens of a request that are not in the cache."""
        return self.tokens(request) - int(self.computed[request])

    def names(self, request: int) -> list[tuple[int, int]]:
        """Names of the blocks at the start of a request's prompt, and of its output where it has any."""
        if not self.load.blocks:
            return []
        if request not in self._names:
            prompt = int(self.load.prompt[request])
            if self.load.outputs_named:
                prompt += int(self.load.output[request])
            self._names[request] = names_of(self.load.blocks[request], self.load.block, self.cache.block, prompt)
        return self._names[request]

    def find_cached(self, request: int) -> list[tuple[int, int]]:
        """Names of the blocks at the start of a waiting request that the cache has. Its last token is computed: logits."""
        most = (self.tokens(request) - 1) // self.cache.block
        names = self._all_names(request, most) if request in self._kept else self.names(request)[:most]
        return names[: self.cache.match(names)]

    def reuse(self, request: int) -> int:
        """Takes what the cache has of a waiting request's prompt; the number of tokens."""
        names = self.find_cached(request)
        if names:
            self.cache.attach(request, names)
            self.computed[request] = len(names) * self.cache.block
        return len(names) * self.cache.block

    def _all_names(self, request: int, count: int) -> list[tuple[int, int]]:
        """Names of the first `count` blocks of a request, its own where the load has none."""
        names = self.names(request)[:count]
        return names + [(-1 - request, place) for place in range(len(names), count)]

    def name_blocks(self, request: int, tokens: int) -> None:
        """Lets others find the full blocks of the first `tokens` of a request."""
        if self.load.blocks:
            self.cache.name(request, self.names(request), tokens)

    def admit(self, found: int) -> None:
        """Lets the first waiting request run; `found`: tokens of it that the cache had."""
        request = self.waiting.popleft()
        if request in self._kept:
            self.recomputed -= found
        else:
            self.hits += found
        self.running.append(request)

    def turn_away(self, request: int) -> None:
        """Gives back what `reuse` took of the cache for a request that has to wait."""
        self.cache.release(request)
        self.computed[request] = self.brought[request]

    def forget(self, request: int, keeps: bool = False) -> None:
        """A preempted request gives back its blocks; what it does not find again, if it `keeps` any, is computed again."""
        computed = int(self.computed[request])
        if keeps:
            self._kept.add(request)
            self.cache.name(request, self._all_names(request, computed // self.cache.block), computed)
        self.recomputed += computed
        self.preempted += 1
        self.brought[request] = 0
        self.turn_away(request)

    def finish(self, step: ServeStep) -> tuple[Int64s, Int64s]:
        """Books a pass: (requests that emitted a token, those of them that are done), which leave."""
        self.computed[step.ids] += step.counts
        whole = self.computed[step.ids] == self.load.prompt[step.ids] + self.emitted[step.ids]
        if self.load.blocks:
            for request in step.ids[(step.counts > 1) | (self.emitted[step.ids] == 0)].tolist():
                self.name_blocks(request, int(self.computed[request]))
        out = step.ids[whole]
        self.emitted[out] += 1
        done = out[self.emitted[out] >= self.load.output[out]]
        if len(done):
            gone = set(done.tolist())
            for request in done.tolist():
                if self.load.outputs_named:
                    self.name_blocks(request, int(self.computed[request]))
                self.cache.release(request, int(self.computed[request]))
                self._names.pop(request, None)
                self._kept.discard(request)
            self.running = [request for request in self.running if request not in gone]
        return out, done
