"""Requests through one lane: an event for each forward pass, or for a run of passes that decode the same requests."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.errors import PlanError
from windtunnel.serving.cache import PagedCache
from windtunnel.serving.lane import Lane, ServeStep
from windtunnel.serving.lengths import Passing, passing_of
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.schedulers.rules import SchedulerRules, rules_of
from windtunnel.serving.schedulers.sglang import Sglang
from windtunnel.serving.step_times import StepTimes

RUN = 128
"""Passes at most that are booked as one event: the cached tokens of a request grow by so many meanwhile."""


@dataclass(frozen=True)
class LaneResult:
    """What happened: seconds at which each request was `sent`, had its `first` and its `last` token; -1 where it was not served.
    `busy`: seconds of passes, `steps` their number, `hits` prompt tokens from the cache, `peak` share of the cache in use at most,
    `mean_batch` requests of the mean pass."""

    sent: Floats
    first: Floats
    last: Floats
    busy: float
    steps: int
    hits: int
    preempted: int
    recomputed: int
    peak: float
    mean_batch: float
    prompt_seconds: float
    verified: int = 0
    rejected: int = 0


FRONT, TOKENISE = 2.0e-3, 1.0e-6
"""Seconds from a user's send until the scheduler may see the request: HTTP and processes, and for each prompt token; assumed
(Hugging Face's tokenizers state 20 s for a GB of text on all of a server's cores: 0.1 us a token, ten times that on one)."""


class LaneClock:
    """Time, arrivals and what is counted while a lane runs. `coming`: (moment at which the scheduler sees it, request)."""

    def __init__(self, load: ServeLoad) -> None:
        count = len(load)
        self.load, self.now, self.busy, self.steps, self.batch, self.peak, self.prompts = load, 0.0, 0.0, 0, 0.0, 0.0, 0.0
        self.sent, self.first, self.last = (np.full(count, -1.0) for _ in range(3))
        self.next, self.since = 0, math.inf
        self.coming: list[tuple[float, int]] = []
        self.then: dict[int, int] = {}
        if load.after is not None:
            self.then = {int(before): request for request, before in enumerate(load.after) if before >= 0}
        for moment in load.arrival.tolist() if load.is_open else [0.0] * load.concurrency:
            self.ask(moment)

    def ask(self, moment: float) -> None:
        """A user sends the next request, if there is one."""
        if self.next < len(self.load):
            request, self.next = self.next, self.next + 1
            if self.load.after is None or self.load.after[request] < 0:
                self.send_at(moment, request)

    def send_at(self, moment: float, request: int) -> None:
        """A user sends `request`; the scheduler sees it soon after."""
        self.sent[request] = moment
        heapq.heappush(self.coming, (moment + FRONT + TOKENISE * float(self.load.prompt[request]), request))

    def send(self, lane: Lane, polls: int) -> None:
        """Requests that the scheduler sees now wait, if it looks: `polls` decoding passes after it last did."""
        if self.since < polls:
            return
        self.since = 0.0
        while self.coming and self.coming[0][0] <= self.now:
            lane.waiting.append(heapq.heappop(self.coming)[1])

    def until_arrival(self) -> float:
        """Seconds until the scheduler sees the next request; infinite without one."""
        return self.coming[0][0] - self.now if self.coming else math.inf

    def end(self, ids: Int64s, done: Int64s) -> None:
        """Requests that emitted a token now, and those of them that are done."""
        new = ids[self.first[ids] < 0.0]
        self.first[new] = self.now
        self.last[done] = self.now
        if not self.load.is_open:
            for _ in range(len(done)):
                self.ask(self.now)
        if self.then:
            for request in done.tolist():
                if request in self.then:
                    self.send_at(self.now + self.load.pause, self.then[request])


def run_lane(times: StepTimes, load: ServeLoad, tokens: int) -> LaneResult:
    """Serves `load` on a lane whose cache holds `tokens`. PlanError for a request that the cache can never hold."""
    engine = times.server.engine
    whole = load.prompt + load.output
    if len(load) and int(whole.max()) > (most := most_tokens(times, tokens)):
        raise PlanError(
            "load", f"a request of {int(whole.max())} tokens", f"at most {most}, which the cache of a lane holds",
            "More GPUs to a replica (--tp), --kv fp8 or --weights fp8 leave more room.",
        )  # fmt: skip
    rules, clock = rules_of(engine), LaneClock(load)
    lane = lane_of(times, load, tokens)
    while True:
        clock.send(lane, engine.polls)
        step = rules.next_step(lane)
        if step is None:
            wait = clock.until_arrival()
            if not math.isfinite(wait):
                break
            clock.now, clock.since = max(clock.now, clock.coming[0][0]), math.inf
            continue
        run_pass(times, rules, lane, clock, step)
    assert not lane.waiting and not lane.running, "requests were left behind"
    steps = max(clock.steps, 1)
    return LaneResult(
        clock.sent, clock.first, clock.last, clock.busy, clock.steps, lane.hits, lane.preempted, lane.recomputed, clock.peak,
        clock.batch / steps, clock.prompts, lane.verified, lane.rejected,
    )  # fmt: skip


def run_pass(times: StepTimes, rules: SchedulerRules, lane: Lane, clock: LaneClock, step: ServeStep) -> None:
    """Runs `step`, and the passes after it that decode the same requests."""
    load, computed = lane.load, lane.computed[step.ids]
    prefill = computed < load.prompt[step.ids] + lane.emitted[step.ids] - 1
    one = passing_of(step.counts, computed, prefill | (lane.emitted[step.ids] == 0))
    sampled = int((computed + step.counts >= load.prompt[step.ids] + lane.emitted[step.ids]).sum()) + one.verified
    seconds = times.seconds(one, sampled)
    times_more = 0 if one.prompt else _repeats(times, rules, lane, clock, step, one)
    if times_more:
        seconds = run_seconds(times, lane, step.ids, one, times_more + 1)
        grown = lane.cache.grow_all(step.ids, computed + rules.reserve(lane) + lane.grown(step.ids, times_more))
        assert grown
        lane.decode_on(step.ids, times_more)
        if isinstance(rules, Sglang):
            rules.fall(times_more)
    clock.now += seconds
    clock.busy += seconds
    clock.prompts += seconds if one.prompt else 0.0
    clock.steps += times_more + 1
    clock.since = math.inf if one.prompt else clock.since + times_more + 1
    clock.batch += len(step.ids) * (times_more + 1.0)
    clock.peak = max(clock.peak, 1.0 - lane.cache.available / max(lane.cache.total, 1))
    clock.end(*rules.finish(lane, step))


def _repeats(times: StepTimes, rules: SchedulerRules, lane: Lane, clock: LaneClock, step: ServeStep, one: Passing) -> int:
    """How many more passes like `one` of `step`, which decodes all running requests, come before anything changes."""
    if len(step.ids) != len(lane.running) or one.verified != len(step.ids) * lane.drafts:
        return 0
    left = int(lane.passes_left(step.ids).min()) - 1
    most = min(left, RUN, rules.repeats(lane))
    tokens, held, block = lane.computed[step.ids] + rules.reserve(lane), lane.cache.held[step.ids], lane.cache.block
    while most > 0 and int(np.maximum(-(-(tokens + lane.grown(step.ids, most)) // block) - held, 0).sum()) > lane.cache.available:
        most //= 2
    coming = clock.until_arrival()
    if most <= 0 or not math.isfinite(coming):
        return max(0, most)
    blind = min(most, max(0, times.server.engine.polls - int(clock.since) - 1))  # passes before the scheduler looks again
    most = min(most, int(max(coming, 0.0) / times.seconds(one, one.decodes + one.verified)))
    while most > 0 and run_seconds(times, lane, step.ids, one, most) >= coming:  # it comes before the last of these passes begins
        most -= 1
    return max(most, blind)


def run_seconds(times: StepTimes, lane: Lane, ids: Int64s, one: Passing, passes: int) -> float:
    """Seconds of `passes` that decode the requests `ids`, of which `one` is the first."""
    row = lane.speculation
    more = one.decodes * (passes - 1) / 2.0 if row is None else row.mean_grown(lane.places[ids], passes)
    return passes * times.seconds(one._replace(cached=one.cached + more), one.decodes + one.verified)


def lane_of(times: StepTimes, load: ServeLoad, tokens: int) -> Lane:
    """A lane whose cache holds `tokens`."""
    block = times.server.engine.block
    return Lane(load, PagedCache(tokens // block, block, len(load)), times.server.speculation)


def most_tokens(times: StepTimes, tokens: int) -> int:
    """Tokens of the longest request that a cache of `tokens` can end, in whole blocks and with its drafts."""
    server = times.server
    return tokens // server.engine.block * server.engine.block - 2 * server.drafts
