"""Prefill and decode on copies of their own: prompts are computed on one side, their caches travel, tokens come from the other.

Both sides run by the engine's rules. A request is sent to a prefill lane in turn; its first token ends the prefill. Its cache then
goes to a decode lane over the NICs of both, which carry one cache at a time in the order in which they are ready. A decode lane
takes the request when it has room for its cache, and computes what it has to give up again itself.

Lanes run beside each other: the one whose clock is behind goes next. A decode lane runs several passes in one piece only as far as
no other lane can send it a request.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import PlanError
from windtunnel.serving.lane import Lane
from windtunnel.serving.lengths import Passing, cache_bytes
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.schedulers.rules import SchedulerRules, rules_of
from windtunnel.serving.server import Server
from windtunnel.serving.simulate import FRONT, LaneClock, LaneResult, lane_of, most_tokens, run_pass
from windtunnel.serving.step_times import StepTimes

START = 5e-4
"""Seconds from a prefill's end until its cache begins to travel: the two engines agree on blocks; assumed."""

NIC_SHARE = 0.85
"""Share of a NIC's bandwidth that caches reach in blocks; assumed (Mooncake's transfer engine: 87 % of 4 x 200 Gb/s)."""


class SideClock(LaneClock):
    """A lane of one side. `horizon`: moment before which no request comes that is not in `coming`; `take` is called with the
    requests that ended, `enter` with those that the scheduler sees."""

    def __init__(self, load: ServeLoad, take: Callable[[SideClock, Int64s], None]) -> None:
        super().__init__(replace(load, arrival=np.zeros(0), concurrency=0))
        self.horizon, self.take, self.idle = math.inf, take, False

    def until_arrival(self) -> float:
        """Seconds until the scheduler may see the next request."""
        return min(super().until_arrival(), self.horizon - self.now)

    def end(self, ids: Int64s, done: Int64s) -> None:
        """Requests that emitted a token now, and those that are done."""
        new = ids[self.first[ids] < 0.0]
        self.first[new] = self.now
        self.last[done] = self.now
        self.take(self, done)


@dataclass
class SideLane:
    """A lane with its rules and its clock. `link`: moment from which its NICs are free."""

    times: StepTimes
    lane: Lane
    rules: SchedulerRules
    clock: SideClock
    link: float = 0.0

    def ready_at(self) -> float:
        """The moment at which the lane can do something next; infinite if it has nothing to do."""
        if (self.lane.running or self.lane.waiting) and not self.clock.idle:
            return self.clock.now
        return max(self.clock.now, self.clock.coming[0][0]) if self.clock.coming else math.inf


@dataclass(frozen=True)
class ApartResult:
    """What happened to each request: `result` with the busy seconds of all GPUs' mean; busy shares of both sides, and the mean
    seconds from a prefill's end to the arrival of its cache."""

    result: LaneResult
    prefill_busy: float
    decode_busy: float
    transfer: float


@dataclass
class ApartRun:
    """Both sides while they run; `sent`: when users sent requests, `moved`: seconds of each cache's way."""

    load: ServeLoad
    seconds_of_token: float
    front: list[SideLane] = field(default_factory=list)
    back: list[SideLane] = field(default_factory=list)
    next: int = 0
    moved: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.load)
        self.sent, self.first, self.last = (np.full(count, -1.0) for _ in range(3))

    def begin(self) -> None:
        """All moments of an open loop, or the first request of each user."""
        for moment in self.load.arrival.tolist() if self.load.is_open else [0.0] * self.load.concurrency:
            self.ask(moment)

    def ask(self, moment: float) -> None:
        """A user sends the next request, if there is one, to the next prefill lane."""
        if self.next < len(self.load):
            request, self.next = self.next, self.next + 1
            self.sent[request] = moment
            self.front[request % len(self.front)].clock.send_at(moment, request)

    def hand_over(self, clock: SideClock, done: Int64s) -> None:
        """Prefills ended: their caches travel."""
        here = next(one for one in self.front if one.clock is clock)
        self.first[done] = clock.now
        for request in done.tolist():
            if self.load.output[request] <= 1:
                self.leave(clock.now, request)
                continue
            there = self.back[request % len(self.back)]
            begin = max(clock.now + START, here.link, there.link)
            here.link = there.link = begin + self.seconds_of_token * float(self.load.prompt[request])
            self.moved += there.link - clock.now
            heapq.heappush(there.clock.coming, (there.link, request))

    def finish(self, clock: SideClock, done: Int64s) -> None:
        """Requests got their last token."""
        for request in done.tolist():
            self.leave(clock.now, request)

    def leave(self, moment: float, request: int) -> None:
        self.last[request] = moment
        if not self.load.is_open:
            self.ask(moment)

    def run(self) -> None:
        """Passes of all lanes, the one that is behind first."""
        lanes = [*self.front, *self.back]
        shortest = int(self.load.prompt.min())
        least = min(_prompt_seconds(one.times, shortest) for one in self.front) + FRONT + START
        while True:
            at = min(range(len(lanes)), key=lambda n: (lanes[n].ready_at(), n))
            one = lanes[at]
            moment = one.ready_at()
            if not math.isfinite(moment):
                return
            clock, lane = one.clock, one.lane
            if moment > clock.now:
                clock.now, clock.since = moment, math.inf
            clock.idle = False
            if at < len(self.front):
                clock.send(lane, one.times.server.engine.polls)
            else:
                _take_in(clock, lane)
                clock.horizon = self._horizon(at, lanes, least)
            step = one.rules.next_step(lane)
            if step is None:
                clock.idle = True
                continue
            run_pass(one.times, one.rules, lane, clock, step)

    def _horizon(self, at: int, lanes: list[SideLane], least: float) -> float:
        """The moment before which no other lane sends lane `at` a request that is not on its way: a prefill ends after its lane's
        clock, and a request that follows on one that ends elsewhere has its prefill first."""
        ready = [(place, one.ready_at()) for place, one in enumerate(lanes) if place != at]
        return min((moment + (START if place < len(self.front) else least) for place, moment in ready), default=math.inf)


def _prompt_seconds(times: StepTimes, tokens: int) -> float:
    """Seconds of a pass over one prompt."""
    return times.seconds(Passing(tokens, 1, tokens * (tokens + 1) / 2.0, 0, 0.0), 1)


def _take_in(clock: SideClock, lane: Lane) -> None:
    """Requests whose caches are there wait for a seat, with their prompt computed and one token emitted."""
    clock.since = 0.0
    while clock.coming and clock.coming[0][0] <= clock.now:
        request = heapq.heappop(clock.coming)[1]
        lane.computed[request] = lane.brought[request] = lane.load.prompt[request]
        lane.emitted[request] = 1
        lane.waiting.append(request)


def transfer_seconds(prefill: Server, decode: Server) -> float:
    """Seconds for the cache of a token between two copies: the GPU with most of it, over its NIC; over NVLink where both copies are
    in one domain."""
    node = decode.job.cluster.node
    near = prefill.plan.gpus + decode.plan.gpus <= node.domain
    rate = node.scale_up.bandwidth if near or node.nic is None else node.nic.count * node.nic.bandwidth / node.gpus
    return max(cache_bytes(prefill)[0], cache_bytes(decode)[0]) / (NIC_SHARE * rate)


def run_apart(prefill: StepTimes, decode: StepTimes, load: ServeLoad, tokens: tuple[int, int]) -> ApartResult:
    """`load` over all lanes of both servers; `tokens`: what the cache of a lane of each holds. PlanError for a request that no
    cache holds."""
    whole = load.prompt + load.output
    rooms = most_tokens(prefill, tokens[0]), most_tokens(decode, tokens[1])
    for side, held, most in (("prefill", rooms[0], load.prompt + 1), ("decode", rooms[1], whole)):
        if int(most.max()) > held:
            raise PlanError(
                "load", f"a request of {int(most.max())} tokens", f"at most {held}, which the cache of a {side} lane holds",
                "More GPUs to a copy, --kv fp8 or --weights fp8 leave more room.",
            )  # fmt: skip
    run = ApartRun(load, transfer_seconds(prefill.server, decode.server))
    prompts = replace(load, output=np.ones(len(load), np.int64), outputs_named=False)
    answers = replace(load, blocks=())
    run.front = [_lane(prefill, prompts, tokens[0], run.hand_over) for _ in range(prefill.server.lanes)]
    run.back = [_lane(decode, answers, tokens[1], run.finish) for _ in range(decode.server.lanes)]
    run.begin()
    run.run()
    assert bool((run.last >= 0.0).all()), "requests were left behind"
    return _summary(run, prefill.server, decode.server)


def _lane(times: StepTimes, load: ServeLoad, tokens: int, take: Callable[[SideClock, Int64s], None]) -> SideLane:
    engine = times.server.engine
    lane = lane_of(times, load, tokens)
    return SideLane(times, lane, rules_of(engine), SideClock(load, take))


def _summary(run: ApartRun, prefill: Server, decode: Server) -> ApartResult:
    seconds = float(run.last.max() - run.sent.min())
    busy = [sum(one.clock.busy for one in side) / len(side) for side in (run.front, run.back)]
    gpus = (prefill.job.cluster.gpus, decode.job.cluster.gpus)
    shares = [gpus[n] / sum(gpus) for n in (0, 1)]
    steps = sum(one.clock.steps for one in run.back)
    lanes = [one.lane for one in (*run.front, *run.back)]
    result = LaneResult(
        run.sent, run.first, run.last, shares[0] * busy[0] + shares[1] * busy[1], steps, sum(lane.hits for lane in lanes),
        sum(lane.preempted for lane in lanes), sum(lane.recomputed for lane in lanes), max(one.clock.peak for one in run.back),
        sum(one.clock.batch for one in run.back) / max(steps, 1), shares[0] * busy[0],
        sum(lane.verified for lane in lanes), sum(lane.rejected for lane in lanes),
    )  # fmt: skip
    many = max(int((run.load.output > 1).sum()), 1)
    return ApartResult(result, busy[0] / seconds, busy[1] / seconds, run.moved / many)
