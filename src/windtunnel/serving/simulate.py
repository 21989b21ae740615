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


class LaneClock:
    """Time, arrivals and what is counted while a lane runs."""

    def __init__(self, load: ServeLoad) -> None:
        count = len(load)
        self.load, self.now, self.busy, self.steps, self.batch, self.peak, self.prompts = load, 0.0, 0.0, 0, 0.0, 0.0, 0.0
        self.sent, self.first, self.last = (np.full(count, -1.0) for _ in range(3))
        self.next = 0
        self.due: list[tuple[float, int]] = []

    def send(self, lane: Lane) -> None:
        """Requests that have come wait: the next of the trace, or of users whose last one has ended."""
        if self.load.is_open:
            while self.next < len(self.load) and self.load.arrival[self.next] <= self.now:
                self.sent[self.next] = self.load.arrival[self.next]
                lane.waiting.append(self.next)
                self.next += 1
            return
        while self.due:
            moment, _ = heapq.heappop(self.due)
            if self.next < len(self.load):
                self.sent[self.next] = moment
                lane.waiting.append(self.next)
                self.next += 1

    def until_arrival(self) -> float:
        """Seconds to the next arrival of a trace."""
        if self.load.is_open and self.next < len(self.load):
            return float(self.load.arrival[self.next]) - self.now
        return math.inf

    def end(self, ids: Int64s, done: Int64s) -> None:
        """Requests that emitted a token now, and those of them that are done."""
        new = ids[self.first[ids] < 0.0]
        self.first[new] = self.now
        self.last[done] = self.now
        if not self.load.is_open:
            self.due += [(self.now, 0)] * len(done)


def run_lane(times: StepTimes, load: ServeLoad, tokens: int) -> LaneResult:
    """Serves `load` on a lane whose cache holds `tokens`. PlanError for a request that the cache can never hold."""
    engine = times.server.engine
    whole = load.prompt + load.output
    if len(load) and int(whole.max()) > tokens:
        raise PlanError(
            "load", f"a request of {int(whole.max())} tokens", f"at most {tokens}, which the cache of a lane holds",
            "More GPUs to a replica (--tp), --kv fp8 or --weights fp8 leave more room.",
        )  # fmt: skip
    lane = Lane(load, PagedCache(tokens // engine.block, engine.block, len(load)))
    rules, clock = rules_of(engine), LaneClock(load)
    clock.due = [(0.0, 0)] * load.concurrency
    while True:
        clock.send(lane)
        step = rules.next_step(lane)
        if step is None:
            wait = clock.until_arrival()
            if not math.isfinite(wait):
                break
            clock.now += wait
            continue
        _pass(times, rules, lane, clock, step)
    assert not lane.waiting and not lane.running, "requests were left behind"
    steps = max(clock.steps, 1)
    return LaneResult(
        clock.sent, clock.first, clock.last, clock.busy, clock.steps, lane.hits, lane.preempted, lane.recomputed, clock.peak,
        clock.batch / steps, clock.prompts,
    )  # fmt: skip


def _pass(times: StepTimes, rules: SchedulerRules, lane: Lane, clock: LaneClock, step: ServeStep) -> None:
    """Runs `step`, and the passes after it that decode the same requests."""
    load, computed = lane.load, lane.computed[step.ids]
    prefill = computed < load.prompt[step.ids] + lane.emitted[step.ids] - 1
    one = passing_of(step.counts, computed, prefill | (lane.emitted[step.ids] == 0))
    sampled = int((computed + step.counts == load.prompt[step.ids] + lane.emitted[step.ids]).sum())
    seconds = times.seconds(one, sampled)
    times_more = 0 if one.prompt else _repeats(rules, lane, clock, step, seconds)
    if times_more:
        longer = Passing(0, 0, 0.0, one.decodes, one.cached + one.decodes * times_more / 2.0)
        seconds = times.seconds(longer, sampled) * (times_more + 1)
        grown = lane.cache.grow_all(step.ids, computed + 1 + times_more)
        assert grown
        lane.emitted[step.ids] += times_more
        lane.computed[step.ids] += times_more
        if isinstance(rules, Sglang):
            rules.fall(times_more)
    clock.now += seconds
    clock.busy += seconds
    clock.prompts += seconds if one.prompt else 0.0
    clock.steps += times_more + 1
    clock.batch += len(step.ids) * (times_more + 1.0)
    clock.peak = max(clock.peak, 1.0 - lane.cache.available / max(lane.cache.total, 1))
    clock.end(*lane.finish(step))


def _repeats(rules: SchedulerRules, lane: Lane, clock: LaneClock, step: ServeStep, seconds: float) -> int:
    """How many more passes like `step`, which decodes all running requests, come before anything changes."""
    if len(step.ids) != len(lane.running):
        return 0
    left = int((lane.load.output[step.ids] - lane.emitted[step.ids]).min()) - 1
    coming = clock.until_arrival()
    most = min(left, RUN, rules.repeats(lane), int(coming / seconds) if math.isfinite(coming) else RUN)
    tokens, held, block = lane.computed[step.ids] + 1, lane.cache.held[step.ids], lane.cache.block
    while most > 0:
        need = int(np.maximum(-(-(tokens + most) // block) - held, 0).sum())
        if need <= lane.cache.available:
            break
        most //= 2
    return max(0, most)
