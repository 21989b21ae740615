"""The requests of one lane while they are served: columns by request, who waits, who runs, the cache."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.serving.cache import NO_NAMES, OWN, BlockNames, PagedCache, names_of
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.speculation import ROW, Speculation
from windtunnel.serving.tiers import TierStore

BEYOND = 1 << 30
"""Passes that need no limit."""


@dataclass(frozen=True)
class ServeStep:
    """One forward pass: `ids` of requests and how many tokens each computes."""

    ids: Int64s
    counts: Int64s


class PassRecord(NamedTuple):
    """Passes that were booked together: seconds at which they began and ended, requests that run and wait, tokens, how many passes
    they are, and the share of the cache that is in use."""

    begin: float
    end: float
    running: int
    waiting: int
    tokens: int
    passes: int
    used: float


@dataclass
class Lane:
    """State of a lane. `computed[r]`: tokens of r in the cache; `emitted[r]`: output tokens so far. A request needs its prompt
    and what it has emitted in the cache; each pass that completes these emits one token more. `brought[r]`: tokens whose cache
    came from elsewhere, until r is preempted. `reused[r]`: prompt tokens that the cache had, `losses[r]`: how often r was
    preempted. `places[r]`: where r is in the row of passes of `speculation`; `verified`: passes of requests that verified
    drafts, `rejected`: tokens of these passes that are not kept."""

    load: ServeLoad
    cache: PagedCache
    speculation: Speculation | None = None
    tiers: TierStore | None = None
    waiting: deque[int] = field(default_factory=deque)
    running: list[int] = field(default_factory=list)
    computed: Int64s = field(init=False)
    emitted: Int64s = field(init=False)
    brought: Int64s = field(init=False)
    reused: Int64s = field(init=False)
    losses: Int64s = field(init=False)
    hits: int = 0
    preempted: int = 0
    recomputed: int = 0
    verified: int = 0
    rejected: int = 0
    places: Int64s = field(init=False)
    _names: dict[int, BlockNames] = field(default_factory=dict, repr=False)
    _kept: set[int] = field(default_factory=set, repr=False)
    _fetched: set[int] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        count = len(self.load)
        self.computed, self.emitted, self.brought, self.reused, self.losses = (np.zeros(count, np.int64) for _ in range(5))
        self.places = np.zeros(count, np.int64) if self.speculation is None else self.speculation.begin(count)

    def tokens(self, request: int) -> int:
        """Prompt and emitted tokens of a request."""
        return int(self.load.prompt[request] + self.emitted[request])

    def tokens_left(self, request: int) -> int:
        """Tokens of a request that are not in the cache."""
        return self.tokens(request) - int(self.computed[request])

    @property
    def drafts(self) -> int:
        """Drafted tokens of a decoding request in each pass."""
        return 0 if self.speculation is None else self.speculation.drafts

    def count_wanted(self, ids: Int64s) -> Int64s:
        """Tokens that each of `ids` would compute in a pass without limits: with its drafts, if it decodes."""
        left = self.load.prompt[ids] + self.emitted[ids] - self.computed[ids]
        return left + self.drafts * ((left == 1) & (self.emitted[ids] > 0)) if self.drafts else left

    def count_wanted_by(self, request: int) -> int:
        """`count_wanted` of one request."""
        left = self.tokens_left(request)
        return left + self.drafts if left == 1 and self.emitted[request] > 0 else left

    def passes_left(self, ids: Int64s) -> Int64s:
        """Passes of each of `ids`, which decode, until its last token; no more than need to be known where drafts are."""
        left = self.load.output[ids] - self.emitted[ids]
        return left if self.speculation is None else self.speculation.passes_until(self.places[ids], left)

    def grown(self, ids: Int64s, passes: int) -> Int64s | int:
        """Tokens that `passes` passes add to each of `ids`, which decode."""
        return passes if self.speculation is None else self.speculation.grown(self.places[ids], passes)

    def decode_on(self, ids: Int64s, passes: int) -> None:
        """Books `passes` passes that decode `ids`, in which none of them ends."""
        more = self.grown(ids, passes)
        self.emitted[ids] += more
        self.computed[ids] += more
        if self.speculation is not None:
            self.rejected += len(ids) * passes * (1 + self.drafts) - int(np.sum(more))
            self.verified += len(ids) * passes
            self._move_on(ids, passes)

    def _move_on(self, ids: Int64s, passes: int) -> None:
        self.places[ids] = (self.places[ids] + passes) % ROW

    def names(self, request: int) -> BlockNames:
        """Names of the blocks at the start of a request's prompt, and of its output where it has any."""
        if request not in self._names:
            if not self.load.blocks:
                return NO_NAMES
            prompt = int(self.load.prompt[request])
            if self.load.outputs_named:
                prompt += int(self.load.output[request])
            self._names[request] = names_of(self.load.blocks[request], self.load.block, self.cache.block, prompt)
        return self._names[request]

    def count_cached(self, request: int) -> int:
        """Blocks at the start of a waiting request that the cache has. Its last token is computed: the logits are needed."""
        most = (self.tokens(request) - 1) // self.cache.block
        return min(most, self.cache.match(self.names(request)))

    def reuse(self, request: int, found: int | None = None) -> int:
        """Takes what the cache has of a waiting request; the number of tokens. `found`: its blocks, if they are counted."""
        found = self.count_cached(request) if found is None else found
        if found:
            self.cache.attach(request, self.names(request), found)
            self.computed[request] = max(found * self.cache.block, int(self.brought[request]))
        return found * self.cache.block

    def name_blocks(self, request: int, tokens: int) -> None:
        """Lets others find the full blocks of the first `tokens` of a request."""
        if self.load.blocks:
            self.cache.name(request, self.names(request), tokens)
            if self.tiers is not None:
                self.tiers.put(self.names(request), tokens // self.cache.block)

    def fetch(self, request: int, moment: float) -> float:
        """The moment from which a request that comes at `moment` has what the tiers behind the cache know of its prompt."""
        if self.tiers is None or request in self._fetched or not self.load.blocks:
            return moment
        self._fetched.add(request)
        found, most = self.count_cached(request), (self.tokens(request) - 1) // self.cache.block
        more, ready = self.tiers.fetch(self.names(request), found, most, moment)
        if more:
            self.computed[request] = self.brought[request] = (found + more) * self.cache.block
            self.reused[request] = more * self.cache.block
        return ready

    def admit(self, found: int) -> None:
        """Lets the first waiting request run; `found`: tokens of it that the cache had."""
        request = self.waiting.popleft()
        if request in self._kept:
            self.recomputed -= found
        else:
            self.hits += found
            self.reused[request] = max(found, int(self.brought[request]))
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
            self._names[request] = self.names(request)._replace(own=OWN + request)
            self.cache.name(request, self._names[request], computed)
        self.recomputed += computed
        self.preempted += 1
        self.losses[request] += 1
        self.brought[request] = 0
        self.turn_away(request)

    def finish(self, step: ServeStep) -> tuple[Int64s, Int64s]:
        """Books a pass: (requests that emitted a token, those of them that are done), which leave."""
        kept, tokens = self._keep(step)
        self.computed[step.ids] += kept
        whole = tokens > 0
        if self.load.blocks:
            for request in step.ids[(step.counts > 1) | (self.emitted[step.ids] == 0)].tolist():
                self.name_blocks(request, int(self.computed[request]))
        out = step.ids[whole]
        self.emitted[out] += tokens[whole]
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

    def finish_and_trim(self, step: ServeStep) -> tuple[Int64s, Int64s]:
        """Books a pass as `finish`, and frees the blocks beyond what its requests have computed."""
        ended = self.finish(step)
        if self.drafts:
            self.cache.give_back(step.ids, self.computed[step.ids] * (self.cache.held[step.ids] > 0))
        return ended

    def _keep(self, step: ServeStep) -> tuple[Int64s, Int64s]:
        """(tokens of each request of a pass that stay in its cache, tokens that it emits)."""
        ids, counts = step.ids, step.counts
        left = self.load.prompt[ids] + self.emitted[ids] - self.computed[ids]
        ends = (counts == left).astype(np.int64)
        if self.speculation is None:
            return counts, ends
        verifies = counts > left
        found = np.minimum(self.speculation.tokens[self.places[ids]], np.minimum(counts, self.load.output[ids] - self.emitted[ids]))
        kept = np.where(verifies, found, counts)
        self.rejected += int((counts - kept).sum())
        self.verified += int(verifies.sum())
        self._move_on(ids[verifies], 1)
        return kept, np.where(verifies, found, ends)
