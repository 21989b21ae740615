"""What asks a server: requests with prompt and output lengths, and when they come."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.lengths import draw_lengths

SEED = 1
"""Seed of drawn lengths and arrivals."""


@dataclass(frozen=True)
class ServeLoad:
    """Requests in the order in which they come.

    `prompt`, `output`: tokens of each; `arrival`: seconds (open loop), or empty: `concurrency` users who each send the next request
    when the last one has ended (closed loop). `blocks`: names of the blocks of `block` tokens at the start of each prompt, for the
    prefix cache; with `outputs_named` they go on through the output. `after[r]`: the request at whose end request r is sent,
    `pause` seconds later, such as the next turn of a conversation, or `pauses[r]`; -1 for one with an arrival. `notes`: what was
    done to a trace. `tokenise`: seconds in which a token of prompts is tokenised; None: those of text (`simulate.TOKENISE`).
    `cold`: whether the server ran nothing before, so that the first requests wait while kernels are tuned and compiled.
    """

    prompt: Int64s
    output: Int64s
    arrival: Floats
    concurrency: int = 0
    blocks: tuple[tuple[int, ...], ...] = ()
    block: int = 512
    notes: tuple[str, ...] = ()
    outputs_named: bool = False
    after: Int64s | None = None
    pause: float = 0.0
    pauses: Floats | None = None
    tokenise: float | None = None
    cold: bool = False

    def __len__(self) -> int:
        return len(self.prompt)

    @cached_property
    def is_open(self) -> bool:
        """Whether requests come at stated moments."""
        return len(self.arrival) > 0

    def part(self, lane: int, lanes: int) -> ServeLoad:
        """What comes to one of `lanes`: every `lanes`-th request, or those of every `lanes`-th user."""
        if lanes == 1:
            return self
        users, dealt = 0, np.arange(len(self)) if self.after is None else self._roots
        if not self.is_open:
            dealt, users = dealt % self.concurrency, len(range(lane, self.concurrency, lanes))
        mine = np.nonzero(dealt % lanes == lane)[0]
        arrival = self.arrival[mine] if self.is_open else self.arrival
        blocks = tuple(self.blocks[request] for request in mine.tolist()) if self.blocks else ()
        after, pauses = None, None if self.pauses is None else self.pauses[mine]
        if self.after is not None:
            places = np.full(len(self) + 1, -1, np.int64)
            places[mine] = np.arange(len(mine))
            after = places[self.after[mine]]
        return ServeLoad(
            self.prompt[mine], self.output[mine], arrival, users, blocks, self.block, self.notes, self.outputs_named, after,
            self.pause, pauses, self.tokenise, self.cold,
        )  # fmt: skip

    def mask_judged(self, sent: Floats) -> Bools:
        """[requests] which of them say whether a server keeps limits, by when they were `sent`: not those that all users send at
        once at the start, where there are others. Users of a service do not begin together, and the share that keeps a limit would
        hang on how long the load is."""
        later: Bools = sent > float(sent.min())
        return later if not self.is_open and later.any() else np.ones(len(sent), bool)

    @cached_property
    def _roots(self) -> Int64s:
        """[requests] which session each belongs to: turns of a session stay on a lane."""
        assert self.after is not None
        roots, sessions = np.zeros(len(self), np.int64), 0
        for request, before in enumerate(self.after.tolist()):
            roots[request] = roots[before] if before >= 0 else sessions
            sessions += before < 0
        return roots


def drawn_load(
    isl: str | int,
    osl: str | int,
    *,
    requests: int | None = None,
    concurrency: int | None = None,
    rate: float | None = None,
    burstiness: float = 1.0,
    seed: int = SEED,
) -> ServeLoad:
    """`requests` with lengths `isl` and `osl`, from `concurrency` users or at `rate` requests a second.

    A length is a number, `LOW-HIGH` (uniform), `MEAN~CV` (log-normal with that coefficient of variation), or `MEAN~CV<CAP`.
    `burstiness`: shape of the gamma distribution of gaps, 1: Poisson, below: burstier, above: more even. Left out, `requests` are
    ten for each user, or as many as come in ten minutes (200 at least). An infinite `rate`, as benchmarks write it, sends all of
    `requests` at once. SpecError for what cannot be.
    """
    if (concurrency is None) == (rate is None):
        raise SpecError("load", (concurrency, rate), "--concurrency (closed loop) or --rate (open loop), one of both")
    if rate == math.inf:
        if requests is None:
            raise SpecError("requests", None, "how many come at once, since --rate is inf", "Type --requests 1000.")
        concurrency, rate = requests, None
    if concurrency is not None and concurrency < 1:
        raise SpecError("concurrency", concurrency, "a positive number of users")
    if rate is not None and not (math.isfinite(rate) and rate > 0.0):
        raise SpecError("rate", rate, "requests a second, such as 2.5")
    if not (math.isfinite(burstiness) and burstiness > 0.0):
        raise SpecError("burstiness", burstiness, "a positive number; 1 is Poisson")
    count = requests if requests is not None else 10 * concurrency if concurrency else max(200, round(600.0 * (rate or 0.0)))
    if not 0 < count <= 10_000_000:
        raise SpecError("requests", count, "1 to 10,000,000")
    draws = np.random.default_rng(seed)
    prompt, output = draw_lengths("isl", isl, count, draws), draw_lengths("osl", osl, count, draws)
    if rate is None:
        return ServeLoad(prompt, output, np.zeros(0), int(concurrency or 1))
    gaps = draws.gamma(burstiness, 1.0 / (rate * burstiness), count)
    return ServeLoad(prompt, output, np.cumsum(gaps) - gaps[0])
