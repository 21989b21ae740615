"""One replica as a router sees it: a lane whose passes come from a table, and whose decoding passes are booked in one piece until
something changes. Requests that decode together get a token each pass, so a counter of passes says when each ends.

It follows its engine's rules as far as they set what users wait: prompts beside tokens (vLLM, TensorRT-LLM) or alone (SGLang), a
budget of tokens, seats, room in the cache, one pass chosen ahead. `serving.simulate` does the same pass by pass and block by block;
tests compare both.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.replicas.pass_table import PassTable
from windtunnel.serving.replicas.prefixes import PrefixCache
from windtunnel.serving.server import Server

IDLE, PROMPTS, TOKENS = range(3)
"""What a replica does: nothing, a pass with prompts, a run of passes that decode."""

WHOLE, FIRST, REST = range(3)
"""What a replica computes of a request: all of it, its first token, or all others from a cache that came from elsewhere."""


@dataclass
class RequestBook:
    """Requests of a fleet, a column each: tokens, names of blocks, seconds at which each was `sent`, had its `first` and its `last`
    token (-1 before), tokens `emitted`, prompt tokens that a cache had (`hits`), how often it was `preempted`, was `resent` after a
    failure, and where it ran last (`replica`)."""

    prompt: list[int]
    output: list[int]
    names: Sequence[Sequence[int]] = ()
    sent: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    resent: list[int] = field(default_factory=list)
    replica: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.prompt)
        self.sent, self.first, self.last = ([-1.0] * count for _ in range(3))
        self.emitted, self.hits, self.preempted, self.resent = ([0] * count for _ in range(4))
        self.replica = [-1] * count


@dataclass(frozen=True)
class ReplicaKind:
    """What all replicas of a side share: `passes`, tokens that the cache of a lane holds (`room`), `seats`, the engine's limits,
    the part of a request that they compute (`stage`)."""

    server: Server
    passes: PassTable
    room: int
    stage: int = WHOLE

    def __post_init__(self) -> None:
        engine = self.server.engine
        member = ENGINES[engine.name]
        ranks = self.passes.ranks
        put = object.__setattr__
        put(self, "seats", engine.running * ranks)
        put(self, "alone", member.prompts_alone and ranks == 1)  # other ranks decode meanwhile
        put(self, "promise", member.promised)
        put(self, "ahead", engine.ahead)
        put(self, "stalls", member.prompts_alone and ranks > 1)
        put(self, "keeps", engine.keeps_blocks)
        put(self, "chunk", (engine.prefill_chunk or engine.step_tokens) * ranks)
        put(self, "whole", engine.step_tokens * ranks)
        put(self, "cuts", engine.cuts_prompts)
        put(self, "polls", engine.polls)

    seats: int = field(init=False)
    alone: bool = field(init=False)
    promise: float = field(init=False)
    ahead: bool = field(init=False)
    stalls: bool = field(init=False)
    keeps: bool = field(init=False)
    chunk: int = field(init=False)
    whole: int = field(init=False)
    cuts: bool = field(init=False)
    polls: int = field(init=False)

    def waits(self, wanted: int, budget: int) -> bool:
        """Whether `wanted` tokens of a prompt wait for a pass that has room for them all: no pass has less than it can have."""
        return not self.cuts and budget < wanted <= self.whole


class Replica:
    """One lane of a replica. `until`: when what it does ends; `stamp`: rises whenever that changes."""

    def __init__(self, kind: ReplicaKind, book: RequestBook, cache: PrefixCache | None = None) -> None:
        self.kind, self.book, self.cache = kind, book, cache
        self.queue: deque[tuple[float, int]] = deque()
        self.busy = self.prompt_busy = self.batch = 0.0
        self.passes_done = self.preempted = 0
        self.until, self.stamp = math.inf, 0
        self.clear()

    def clear(self) -> None:
        """Nothing runs, nothing waits, nothing is in the cache."""
        self.state, self.start, self.began = IDLE, 0.0, math.inf
        self.decoding = self.context = self.used = self.counter = self.ends_sum = self.run = 0
        self.ends: list[tuple[int, int]] = []
        self.end_of: dict[int, int] = {}
        self.order: list[int] = []
        self.filling, self.filled = -1, 0
        self.joining: list[int] = []
        self.again: dict[int, tuple[int, int]] = {}
        self.pins: dict[int, int] = {}  # blocks of running requests that the cache counts, since others may use them
        self.taken = 0
        self.credit = 0.0  # share of a pass that ranks without prompts have decoded
        self.blocked = False
        self.since = math.inf  # passes that decoded since the last look at new requests
        self.queue.clear()
        self.until = math.inf
        self.stamp += 1

    def unfinished_requests(self) -> list[int]:
        """Requests that run or wait."""
        some = [request for _, request in self.queue]
        some += [*self.joining, *([self.filling] if self.filling >= 0 else [])]
        return [*self.end_of, *dict.fromkeys(some)]

    def take(self, seen: float, request: int) -> None:
        """The scheduler sees `request` at the moment `seen`."""
        self.queue.append((seen, request))
        if self.state == IDLE:
            self.begin(seen)
        elif self.state == TOKENS and self.run > 1 and not self.blocked:
            self._cut(seen)

    def _run_seconds(self, passes: int) -> float:
        """Seconds of `passes` that decode what decodes now."""
        mean = (self.context + self.decoding * (passes - 1) / 2.0) / self.decoding
        return passes * self.kind.passes.decode(self.decoding, mean)

    def _cut(self, seen: float) -> None:
        """A run of passes ends when the scheduler can look at what came at `seen`."""
        whole, more = self.until - self.start, 2 if self.kind.ahead else 1
        passes = max(int((seen - self.start) / whole * self.run) + more, int(self.kind.polls - self.since))
        while passes < self.run:
            seconds = self._run_seconds(passes)
            began = self.start + seconds * (passes - 1) / passes
            if began >= seen or not self.kind.ahead:
                self.run, self.until, self.began = passes, self.start + seconds, began
                self.stamp += 1
                return
            passes += 1

    def begin(self, now: float) -> None:
        """Chooses what runs from `now` on."""
        moment = self.began if self.kind.ahead and (self.decoding or self.filling >= 0) else now
        self.start, self.stamp = now, self.stamp + 1
        self.blocked = False
        looks = self.since >= self.kind.polls
        self.since = 0 if looks else self.since
        if looks and (self.filling >= 0 or (self.queue and self.queue[0][0] <= moment)):
            if self._begin_prompts(now, moment):
                return
            self.blocked = self.filling >= 0 or (bool(self.queue) and self.queue[0][0] <= moment)
        if not self.decoding:
            self.since = math.inf
            self.state, self.until = IDLE, max(now, self.queue[0][0]) if self.queue else math.inf
            return
        self._begin_tokens(now, moment if looks else -math.inf)

    def _begin_tokens(self, now: float, moment: float) -> None:
        """A run of passes that decode, until the first request ends or the cache is full, or until the scheduler looks at those
        that came after `moment`."""
        ends, end_of = self.ends, self.end_of
        while end_of.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        passes = ends[0][0] - self.counter
        while self.decoding > 1 and self.held_tokens + self.decoding > self.kind.room:
            self._preempt()
            while end_of.get(ends[0][1]) != ends[0][0]:
                heapq.heappop(ends)
            passes = ends[0][0] - self.counter
        passes = min(passes, max(1, (self.kind.room - self.held_tokens) // self.decoding))
        if self.queue and self.queue[0][0] > moment:
            passes = min(passes, max(1, int(self.kind.polls - self.since)))
        seconds = self._run_seconds(passes)
        self.state, self.run, self.until = TOKENS, passes, now + seconds
        self.began = now + seconds * (passes - 1) / passes

    def _preempt(self) -> None:
        """The last request that was admitted gives back its cache, and waits at the head."""
        book = self.book
        while True:
            victim = self.order.pop()
            if victim in self.end_of:
                break
        end = self.end_of.pop(victim)
        emitted = book.output[victim] - (end - self.counter)
        known = book.prompt[victim] + emitted
        self.decoding -= 1
        self.ends_sum -= end
        self.context -= known
        self.used -= known - 1 - self._found_tokens(victim)
        self._unpin(victim)
        self.again[victim] = (known - 1, self.taken)
        book.emitted[victim] = emitted
        book.preempted[victim] += 1
        self.preempted += 1
        self.queue.appendleft((self.start, victim))

    def _begin_prompts(self, now: float, moment: float) -> bool:
        """A pass with prompts; false if none has room."""
        kind, book = self.kind, self.book
        budget = kind.chunk if kind.alone else kind.whole - self.decoding
        tokens, chunks, pairs = 0, 0, 0.0
        joining = self.joining
        if self.filling >= 0:
            request = self.filling
            known = book.prompt[request] + book.emitted[request]
            if kind.waits(known - self.filled, budget):
                return False
            count = min(known - self.filled, budget)
            tokens, chunks, pairs = count, 1, count * self.filled + count * (count + 1) / 2.0
            self.filled += count
            budget -= count
            if self.filled >= known:
                joining.append(request)
                self.filling = -1
        tokens, chunks, pairs = self._admit(moment, budget, tokens, chunks, pairs)
        if not tokens:
            return False
        beside = 0 if kind.alone else self.decoding
        context = self.context / self.decoding if beside else 1.0
        seconds = kind.passes.mixed_seconds(tokens, chunks, pairs, beside, context, beside + len(joining))
        self.state, self.until, self.began = PROMPTS, now + seconds, now
        self.run = 1 if beside else 0
        if beside and kind.stalls:
            self.credit += 1.0 - min(chunks, kind.passes.ranks) / kind.passes.ranks
            self.run = int(self.credit)
            self.credit -= self.run
        return True

    def _admit(self, moment: float, budget: int, tokens: int, chunks: int, pairs: float) -> tuple[int, int, float]:
        """Waiting requests join a pass of `tokens` in `chunks` with `pairs`, while its budget, seats and room last; the same, with
        theirs."""
        kind, book, queue, joining = self.kind, self.book, self.queue, self.joining
        left = kind.promise * (self.ends_sum - self.decoding * self.counter)
        while queue and budget > 0 and self.filling < 0 and self.decoding + len(joining) < kind.seats:
            seen, request = queue[0]
            if seen > moment:
                break
            known = book.prompt[request] + book.emitted[request]
            if kind.stage == REST and request not in self.again:
                if self.held_tokens + known > kind.room and self.decoding:
                    break
                queue.popleft()
                self.used += known - 1
                self._join(request, known)
                continue
            hit, fresh = (0, 0) if self.cache is None else self.cache.find(book.names[request], known - 1)
            need = known - hit
            there = max(hit, min(self._kept_tokens(request), known - 1))
            ahead = kind.promise * (book.output[request] - book.emitted[request])
            if (self.decoding or joining) and self.held_tokens + fresh + need + left + ahead > kind.room:
                break
            if kind.alone and tokens and need > kind.whole - tokens or kind.waits(known - there, budget):
                break
            queue.popleft()
            left += ahead
            if self.cache is not None:
                self._pin(request, hit // self.cache.index.block)
                self.cache.shrink(kind.room - self.used - need)
            if kind.stage != REST:
                book.hits[request] = hit
            self.used += need
            self.taken += need
            count = min(known - there, budget)
            tokens, chunks, pairs = tokens + count, chunks + 1, pairs + count * there + count * (count + 1) / 2.0
            budget -= count
            if there + count == known:
                joining.append(request)
            else:
                self.filling, self.filled = request, there + count
        return tokens, chunks, pairs

    def _kept_tokens(self, request: int) -> int:
        """Tokens of a preempted request whose blocks nobody took meanwhile, where the engine looks for them."""
        known, taken = self.again.get(request, (0, 0))
        return max(0, known - (self.taken - taken)) if self.kind.keeps else 0

    def _join(self, request: int, known: int) -> None:
        """A request whose first `known` tokens are there decodes."""
        end = self.counter + self.book.output[request] - self.book.emitted[request]
        self.end_of[request] = end
        heapq.heappush(self.ends, (end, request))
        self.order.append(request)
        self.decoding += 1
        self.ends_sum += end
        self.context += known

    def wake(self, now: float) -> list[int]:
        """What it did has ended; the requests that are done with it. Begins what comes next."""
        done: list[int] = []
        if self.state != IDLE:
            state = self.state
            spent = now - self.start
            self.busy += spent
            self.since = math.inf if state == PROMPTS else self.since + self.run
            if self.run:
                self.counter += self.run
                self.context += self.decoding * self.run
                self.used += self.decoding * self.run
                self.taken += self.decoding * self.run
                self.batch += self.decoding * self.run
                self.passes_done += self.run
                self._finish_tokens(now, done)
            if state == PROMPTS:
                self.prompt_busy += spent
                for request in self.joining:
                    self._finish_prompt(now, request, done)
                self.joining.clear()
            if len(self.order) > 64 + 4 * self.decoding:
                self.order = [request for request in self.order if request in self.end_of]
        self.begin(now)
        return done

    def _finish_prompt(self, now: float, request: int, done: list[int]) -> None:
        """A prompt is computed: it has its first token, or the one after those that it had."""
        book = self.book
        book.emitted[request] += 1
        if book.first[request] < 0.0:
            book.first[request] = now
        known = book.prompt[request] + book.emitted[request]
        if self.kind.stage == FIRST or book.emitted[request] >= book.output[request]:
            self.used -= known - 1 - self._found_tokens(request)
            self._leave(request)
            done.append(request)
        else:
            self._lend(request)
            self._join(request, known)

    def _lend(self, request: int) -> None:
        """Blocks of a computed prompt are there for other requests."""
        if self.cache is not None and self.kind.stage != REST:
            whole = min(len(self.book.names[request]), self.book.prompt[request] // self.cache.index.block)
            self.used -= max(0, whole - self.pins.get(request, 0)) * self.cache.index.block
            self._pin(request, whole)

    def _pin(self, request: int, blocks: int) -> None:
        """So many blocks of a running request are the cache's."""
        if self.cache is not None and blocks > (first := self.pins.get(request, 0)):
            self.cache.pin(self.book.names[request][first:blocks])
            self.pins[request] = blocks

    def _unpin(self, request: int) -> None:
        """A request runs no more, and its blocks may go."""
        if self.cache is not None:
            self.cache.unpin(self.book.names[request][: self.pins.pop(request, 0)])

    @property
    def held_tokens(self) -> int:
        """Tokens in the cache that cannot go: those of running requests."""
        return self.used if self.cache is None else self.used + self.cache.pinned_tokens

    def _finish_tokens(self, now: float, done: list[int]) -> None:
        """Requests that have all of their tokens leave."""
        ends, end_of, book = self.ends, self.end_of, self.book
        while ends and ends[0][0] <= self.counter:
            end, request = heapq.heappop(ends)
            if end_of.get(request) != end:
                continue
            del end_of[request]
            self.decoding -= 1
            self.ends_sum -= end
            tokens = book.prompt[request] + book.output[request]
            self.context -= tokens
            self.used -= tokens - 1 - self._found_tokens(request)
            book.emitted[request] = book.output[request]
            self._leave(request)
            done.append(request)

    def _found_tokens(self, request: int) -> int:
        """Tokens of a running request that other requests may hold too."""
        return self.pins.get(request, 0) * self.cache.index.block if self.cache is not None else 0

    def _leave(self, request: int) -> None:
        """Blocks with names stay while there is room."""
        self._unpin(request)
        if self.cache is not None and self.kind.stage != REST:
            names = self.book.names[request]
            whole = (self.book.prompt[request] + self.book.emitted[request]) // self.cache.index.block
            self.cache.keep(names[: min(len(names), max(whole, 0))], self.kind.room - self.used)
