"""The requests of one lane while they are served: columns by request, who waits, who runs, the cache."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.serving.cache import NO_NAMES, BlockNames, PagedCache, names_of
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
    _names: dict[int, BlockNames] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        count = len(self.load)
        self.computed, self.emitted, self.brought = (np.zeros(count, np.int64) for _ in range(3))

    def tokens(self, request: int) -> int:
        """Prompt and emitted tokens of a request."""
        return int(self.load.prompt[request] + self.emitted[request])

    def tokens_left(self, request: int) -> int:
        """Tokens of a request that are not in the cache."""
        return self.tokens(request) - int(self.computed[request])

    def names(self, request: int) -> BlockNames:
        """Names of the blocks at the start of a request's prompt, and of its output where it has any."""
        if not self.load.blocks:
            return NO_NAMES
        if request not in self._names:
            prompt = int(self.load.prompt[request])
            if self.load.outputs_named:
                prompt += int(self.load.output[request])
            self._names[request] = names_of(self.load.blocks[request], self.load.block, self.cache.block, prompt)
        return self._names[request]

    def reuse(self, request: int) -> int:
        """Takes what the cache has of a waiting request's prompt; the number of tokens."""
        names = self.names(request)
        if self.load.outputs_named:
            names = names._replace(named=min(names.named, (self.tokens(request) - 1) // self.cache.block))
        found = self.cache.match(names)
        if found:
            self.cache.attach(request, self.names(request), found)
            self.computed[request] = found * self.cache.block
        return found * self.cache.block

    def name_blocks(self, request: int, tokens: int) -> None:
        """Lets others find the full blocks of the first `tokens` of a request."""
        if self.load.blocks:
            self.cache.name(request, self.names(request), tokens)

    def admit(self, found: int) -> None:
        """Lets the first waiting request run; `found`: tokens of its prompt that the cache had."""
        self.hits += found
        self.running.append(self.waiting.popleft())

    def turn_away(self, request: int) -> None:
        """Gives back what `reuse` took of the cache for a request that has to wait."""
        self.cache.release(request)
        self.computed[request] = self.brought[request]

    def forget(self, request: int) -> None:
        """A preempted request loses its cache; all of it is computed again."""
        self.recomputed += int(self.computed[request])
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
                self.cache.release(request)
                self._names.pop(request, None)
            self.running = [request for request in self.running if request not in gone]
        return out, done
