"""Prefill and decode on copies of their own: prompts are computed on one side, their caches travel, tokens come from the other.

Both sides run by the engine's rules. A request is sent to a prefill lane in turn; its first token ends the prefill. Its cache then
goes to a decode lane over the NICs of both, which carry one cache at a time in the order in which they are ready. A decode lane
takes the request when it has room for its cache, and computes what it has to give up again itself.

Lanes run beside each other: the one whose clock is behind goes next; DP-attention ranks of a copy begin each pass together. A
decode lane runs several passes in one piece only as far as no other lane can send it a request.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import PlanError
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.lane import Lane
from windtunnel.serving.lengths import Passing, cache_bytes
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.server import Server, more_room
from windtunnel.serving.simulate import FRONT, LaneClock, LaneResult, ServedRank, lane_of, most_tokens, run_pass
from windtunnel.serving.step_times import StepTimes

START = 5e-4
"""Seconds from a prefill's end until its cache begins to travel: the two engines agree on blocks; assumed."""

NIC_SHARE = 0.85
"""Share of a NIC's bandwidth that caches reach in blocks; assumed (Mooncake's transfer engine: 87 % of 4 x 200 Gb/s)."""


class SideClock(LaneClock):
    """A lane of one side. `horizon`: moment before which no request comes that is not in `coming`; `take` is called with the
    requests that ended, `enter` with those that the scheduler sees."""

    def __init__(self, load: ServeLoad, take: Callable[[SideClock, Int64s], None], record: bool = False) -> None:
        super().__init__(replace(load, arrival=np.zeros(0), concurrency=0), record)
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
    """A lane of one side. `link`: moment from which its NICs are free."""

    rank: ServedRank
    clock: SideClock
    link: float = 0.0


@dataclass
class SideGroup:
    """Lanes that begin each pass together: the DP-attention ranks of a copy that share experts, or one lane."""

    times: StepTimes
    lanes: list[SideLane]

    @property
    def now(self) -> float:
        """The moment at which the next pass can begin."""
        return self.lanes[0].clock.now

    def ready_at(self) -> float:
        """The moment at which some lane can do something next; infinite if none has anything to do."""
        moments = [math.inf]
        for one in self.lanes:
            if (one.rank.lane.running or one.rank.lane.waiting) and not one.clock.idle:
                return self.now
            if one.clock.coming:
                moments.append(one.clock.coming[0][0])
        return max(self.now, min(moments))

    def wait_until(self, moment: float) -> None:
        """Nothing runs until `moment`."""
        for one in self.lanes:
            if moment > one.clock.now:
                one.clock.skip_to(moment)
            one.clock.idle = False


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
    front: list[SideGroup] = field(default_factory=list)
    back: list[SideGroup] = field(default_factory=list)
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
            lanes = self.lanes(self.front)
            lanes[request % len(lanes)].clock.send_at(moment, request)

    @staticmethod
    def lanes(side: list[SideGroup]) -> list[SideLane]:
        """All lanes of a side."""
        return [lane for group in side for lane in group.lanes]

    def hand_over(self, clock: SideClock, done: Int64s) -> None:
        """Prefills ended: their caches travel."""
        here = next(one for one in self.lanes(self.front) if one.clock is clock)
        backs = self.lanes(self.back)
        self.first[done] = clock.now
        for request in done.tolist():
            if self.load.output[request] <= 1:
                self.leave(clock.now, request)
                continue
            there = backs[request % len(backs)]
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
        groups = [*self.front, *self.back]
        shortest = int(self.load.prompt.min())
        least = min(_prompt_seconds(one.times, shortest) for one in self.front) + FRONT + START
        while True:
            ready = [group.ready_at() for group in groups]
            moment = min(ready)
            at = ready.index(moment)
            group = groups[at]
            if not math.isfinite(moment):
                return
            group.wait_until(moment)
            horizon = math.inf if at < len(self.front) else self._horizon(at, groups, least)
            steps = []
            for one in group.lanes:
                if at < len(self.front):
                    one.clock.send(one.rank.lane, group.times.server.engine)
                else:
                    _take_in(one.clock, one.rank.lane)
                    one.clock.horizon = horizon
                steps.append(one.rank.rules.next_step(one.rank.lane))
                one.clock.idle = steps[-1] is None
            if any(step is not None for step in steps):
                run_pass(group.times, [one.rank for one in group.lanes], steps)
                for one in group.lanes:
                    one.clock.idle = False

    def _horizon(self, at: int, lanes: list[SideGroup], least: float) -> float:
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


def run_apart(prefill: StepTimes, decode: StepTimes, load: ServeLoad, tokens: tuple[int, int], record: bool = False) -> ApartResult:
    """`load` over all lanes of both servers; `tokens`: what the cache of a lane of each holds. PlanError for a request that no
    cache holds."""
    whole = load.prompt + load.output
    rooms = most_tokens(prefill, tokens[0]), most_tokens(decode, tokens[1])
    for side, times, held, most in (("prefill", prefill, rooms[0], load.prompt + 1), ("decode", decode, rooms[1], whole)):
        if int(most.max()) > held:
            raise PlanError(
                "load", f"a request of {int(most.max())} tokens", f"at most {held}, which the cache of a {side} lane holds",
                more_room(times.server),
            )  # fmt: skip
    run = ApartRun(load, transfer_seconds(prefill.server, decode.server))
    prompts = replace(load, output=np.ones(len(load), np.int64), outputs_named=False)
    answers = replace(load, blocks=())
    run.front = _groups(prefill, prompts, tokens[0], run.hand_over, record)
    run.back = _groups(decode, answers, tokens[1], run.finish, record)
    run.begin()
    run.run()
    assert bool((run.last >= 0.0).all()), "requests were left behind"
    return _summary(run, prefill.server, decode.server)


def _groups(
    times: StepTimes, load: ServeLoad, tokens: int, take: Callable[[SideClock, Int64s], None], record: bool
) -> list[SideGroup]:
    """The lanes of a side."""
    server = times.server
    together = server.plan.dp if server.model.experts else 1
    found = []
    for _ in range(server.lanes // together):
        lanes = []
        for _ in range(together):
            clock = SideClock(load, take, record)
            lanes.append(SideLane(ServedRank(lane_of(times, load, tokens), rules_of(server.engine), clock), clock))
        found.append(SideGroup(times, lanes))
    return found


def _summary(run: ApartRun, prefill: Server, decode: Server) -> ApartResult:
    seconds = float(run.last.max() - run.sent.min())
    fronts, backs = run.lanes(run.front), run.lanes(run.back)
    busy = [sum(one.clock.busy for one in side) / len(side) for side in (fronts, backs)]
    gpus = (prefill.job.cluster.gpus, decode.job.cluster.gpus)
    shares = [gpus[n] / sum(gpus) for n in (0, 1)]
    steps = sum(one.clock.steps for one in backs)
    lanes = [one.rank.lane for one in (*fronts, *backs)]
    result = LaneResult(
        run.sent, run.first, run.last, shares[0] * busy[0] + shares[1] * busy[1], steps, sum(lane.hits for lane in lanes),
        sum(lane.preempted for lane in lanes), sum(lane.recomputed for lane in lanes), max(one.clock.peak for one in backs),
        sum(one.clock.batch for one in backs) / max(steps, 1), shares[0] * busy[0],
        np.sum([lane.reused for lane in lanes], axis=0), np.sum([lane.losses for lane in lanes], axis=0),
        tuple(backs[0].clock.log or ()), sum(lane.verified for lane in lanes), sum(lane.rejected for lane in lanes),
        tuple(sum(counts) for counts in zip(*(one.rank.lane.tiers.hits for one in fronts if one.rank.lane.tiers), strict=True)),
    )  # fmt: skip
    many = max(int((run.load.output > 1).sum()), 1)
    return ApartResult(result, busy[0] / seconds, busy[1] / seconds, run.moved / many)
