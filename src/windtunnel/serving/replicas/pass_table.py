"""Seconds of a copy's passes from tables: `StepTimes` looked up in a microsecond, for millions of passes.

What depends on the number of tokens alone is a list; attention over caches is a grid of requests and of their mean context, linear
between; attention over prompts is looked up as `StepTimes` does. DP-attention ranks that share experts count as one lane whose
requests are dealt evenly: each layer lasts as long as on the rank with the prompt.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.serving.lengths import Passing
from windtunnel.serving.step_times import StepTimes

STEPS = 4
"""Contexts of the grid for each octave."""


class PassTable:
    """Seconds of passes of one lane of `times.server`. `ranks`: DP-attention ranks that make up the lane; `most`: tokens of the
    longest request."""

    def __init__(self, times: StepTimes, most: int) -> None:
        server = times.server
        self.times, self.ranks = times, server.plan.dp if server.model.experts else 1
        self.octaves = STEPS * max(1, math.ceil(math.log2(max(most, 2)))) + 1
        self.contexts = 2.0 ** (np.arange(self.octaves + 1) / STEPS)
        self.rows: dict[int, list[float]] = {}
        self._heads: dict[int, float] = {}
        self._caches: dict[int, list[float]] = {}
        self._spans: dict[int, float] = {}

    @cached_property
    def spans(self) -> tuple[list[float], list[float]]:
        """Seconds by tokens: of a rank's own rows, and of its share of experts; of all rows where ranks share none."""
        times, engine = self.times, self.times.server.engine
        most = max(engine.step_tokens, engine.prefill_chunk) + 2 * engine.running
        tokens = np.arange(most + 1)
        sizes = tokens.astype(np.float64)
        sizes[1:] = [times.pad_tokens(int(size)) for size in tokens[1:]]
        if self.ranks == 1:
            return np.interp(sizes, times.sizes, times.table).tolist(), [0.0]
        own, shared = times.parts
        return np.interp(sizes, times.sizes, own).tolist(), np.interp(tokens, times.sizes, shared).tolist()

    def decode(self, requests: int, context: float) -> float:
        """Seconds of a pass in which `requests` decode, each with `context` tokens in the mean."""
        row = self.rows.get(requests)
        if row is None:
            row = self.rows[requests] = self._decode_row(requests)
        return self._at(row, context)

    def _at(self, row: list[float], context: float) -> float:
        """A row of the grid at a context."""
        place = STEPS * math.log2(context) if context > 1.0 else 0.0
        first = min(int(place), len(row) - 2)
        low = self.contexts_list[first]
        return row[first] + (row[first + 1] - row[first]) * (context - low) / (self.contexts_list[first + 1] - low)

    @cached_property
    def contexts_list(self) -> list[float]:
        """The contexts of the grid as plain numbers."""
        return [float(context) for context in self.contexts]

    def cached_row(self, each: int) -> Floats:
        """[contexts] kernel seconds of attention over caches of `each` requests of a rank."""
        ones = np.ones(len(self.contexts))
        total = np.zeros(len(self.contexts))
        for _, count, mixing in self.times.kinds:
            for place, context in enumerate(self.contexts):
                total[place] += count * self.times.cached_seconds(mixing, Passing(0, 0, 0.0, each, each * float(context)))
        return np.asarray(total * ones, np.float64)

    def _decode_row(self, requests: int) -> list[float]:
        each = -(-requests // self.ranks)
        kernels = self._plain_seconds(each, requests) + self._head(each) + self.cached_row(each)
        one = Passing(0, 0, 0.0, each, 0.0)
        return [self._with_host(seconds, one) for seconds in kernels.tolist()]

    def _with_host(self, kernels: float, one: Passing) -> float:
        """Seconds of the pass `one` of a rank, with what its host adds."""
        return self.times.with_host(kernels, one.decodes, self.times.is_captured(one), one.prompt > 0)

    def _plain_seconds(self, tokens: int, everyone: int) -> float:
        """Kernel seconds of rows that depend on tokens alone: `tokens` of the fullest rank, `everyone`'s in all."""
        own, shared = self.spans
        total = own[min(tokens, len(own) - 1)]
        if self.ranks > 1:
            total += shared[min(-(-max(everyone, self.ranks) // self.ranks), len(shared) - 1)]
        return total

    def _head(self, sampled: int) -> float:
        if sampled not in self._heads:
            self._heads[sampled] = float(np.interp(sampled, *self.times.heads)) if sampled else 0.0
        return self._heads[sampled]

    def mixed_seconds(self, prompt: int, chunks: int, pairs: float, requests: int, context: float, sampled: int) -> float:
        """Seconds of a pass over `prompt` tokens in `chunks` pieces with `pairs` of a token and one that it sees, beside `requests`
        that decode; it samples `sampled` tokens."""
        spread = min(chunks, self.ranks)
        own, parts = -(-prompt // spread), -(-chunks // spread)
        each = -(-requests // self.ranks)
        total = self._plain_seconds(own + each, prompt + requests) + self._head(-(-sampled // self.ranks))
        one = Passing(own, parts, pairs / spread, each, 0.0)
        for kind, count, mixing in self.times.kinds:
            total += count * self.times.prompt_seconds(kind, mixing, one)
        if each:
            total += self._attend(each, context)
        return self._with_host(total, one)

    def _attend(self, each: int, context: float) -> float:
        """Kernel seconds of attention over caches: what a decoding pass has beyond its rows."""
        if each not in self._caches:
            self._caches[each] = self.cached_row(each).tolist()
        return self._at(self._caches[each], context)
