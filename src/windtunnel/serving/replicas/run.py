"""Requests of hours over many replicas: a router deals them, replicas fail and come back, an autoscaler starts and stops them.

Events are few: a request comes, a replica ends a pass with prompts or a run of passes that decode. What is between is in closed
form, so a day of a million requests takes a minute.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.serving.disaggregated import START
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.replicas.prefixes import PrefixCache, PrefixIndex
from windtunnel.serving.replicas.replica import FIRST, REST, WHOLE, Replica, ReplicaKind, RequestBook
from windtunnel.serving.routing import NOWHERE, ROUTERS, Router, RouterView
from windtunnel.serving.simulate import FRONT, HANDLE, TOKENISE

OFF, COLD, UP, DRAINING = range(4)
"""A replica takes no GPUs; starts; takes requests; ends those that it has."""

_WAKE, _COME, _FAIL, _READY, _TICK, _BRING, _HAND = range(7)


@dataclass(frozen=True)
class Autoscaler:
    """From `least` to `most` replicas, so that each has `target` requests at a time: Kubernetes' HorizontalPodAutoscaler on
    requests in flight. It looks every `every` seconds (its default: 15), and stops those too many for `calm` seconds (300)."""

    least: int
    most: int
    target: float
    every: float = 15.0
    calm: float = 300.0


@dataclass(frozen=True)
class FleetPlan:
    """What runs: `replicas` of `kind`, or those of `prompts` (with `fronts` of them) before those of `kind`, which then only
    decode; `seconds_of_token`: of a token's cache between both. `mtbf`: mean seconds until a replica fails, `cold_start`: seconds
    until it is back, or a new one takes requests."""

    kind: ReplicaKind
    replicas: int
    router: str = ROUTERS.default
    prompts: ReplicaKind | None = None
    fronts: int = 0
    seconds_of_token: float = 0.0
    mtbf: float = math.inf
    cold_start: float = 120.0
    scaler: Autoscaler | None = None
    seed: int = 1


@dataclass
class SideResult:
    """What replicas of a side did: `busy` seconds of their lanes, of which `prompt_busy` had prompts; `on`: seconds in which they
    took GPUs; `mean_batch`: requests of the mean pass that decodes; `peak`: most replicas at once; `changes`: (moment, replicas
    that take requests, that take GPUs)."""

    busy: float
    prompt_busy: float
    on: float
    mean_batch: float
    peak: int
    changes: list[tuple[float, int, int]]


@dataclass
class FleetResult:
    """What happened: the book of requests, both sides (`fronts` is None where replicas compute all of a request), failures, and
    when the last request ended."""

    book: RequestBook
    whole: SideResult
    fronts: SideResult | None
    failures: int
    end: float


@dataclass
class Copy:
    """A replica: its lanes, its state, and seconds in which it took GPUs (`since`: when it began to)."""

    number: int
    lanes: list[Replica]
    state: int = OFF
    since: float = 0.0
    on: float = 0.0
    turn: int = 0
    life: int = 0
    link: float = 0.0
    free: float = 0.0


@dataclass
class Side:
    """Replicas of one kind behind a router."""

    kind: ReplicaKind
    copies: list[Copy]
    router: Router
    view: RouterView
    changes: list[tuple[float, int, int]] = field(default_factory=list)

    def start(self, copy: Copy, now: float, state: int) -> None:
        """A replica takes GPUs from now on."""
        copy.state, copy.since = state, now
        if state == UP:
            self.open(copy, now)

    def open(self, copy: Copy, now: float) -> None:
        """A replica takes requests."""
        copy.state = UP
        left = [request for lane in copy.lanes for request in lane.unfinished_requests()]
        self.view.requests[copy.number] = float(len(left))
        self.view.tokens[copy.number] = float(sum(copy.lanes[0].book.prompt[request] for request in left))
        self._count(now)

    def close(self, copy: Copy, now: float, state: int) -> None:
        """A replica takes no more requests; without GPUs where it is OFF."""
        copy.state = state
        self.view.requests[copy.number] = self.view.tokens[copy.number] = NOWHERE
        if state == OFF:
            copy.on += now - copy.since
        self._count(now)

    def _count(self, now: float) -> None:
        self.view.up = [copy.number for copy in self.copies if copy.state == UP]
        self.changes.append((now, len(self.view.up), sum(copy.state != OFF for copy in self.copies)))

    def summary(self, end: float) -> SideResult:
        """What its replicas did until `end`."""
        lanes = [lane for copy in self.copies for lane in copy.lanes]
        on = sum(copy.on + (end - copy.since if copy.state != OFF else 0.0) for copy in self.copies)
        batch = sum(lane.batch for lane in lanes) / max(1, sum(lane.passes_done for lane in lanes))
        busy, prompts = sum(lane.busy for lane in lanes), sum(lane.prompt_busy for lane in lanes)
        return SideResult(busy, prompts, on, batch, max(count for _, _, count in self.changes), self.changes)


class ReplicasRun:
    """A fleet while it runs."""

    def __init__(self, plan: FleetPlan, load: ServeLoad) -> None:
        self.plan, self.load = plan, load
        self.book = RequestBook(load.prompt.tolist(), load.output.tolist(), load.blocks)
        self.heap: list[tuple[float, int, int, int, int]] = []
        self.draws = np.random.default_rng([plan.seed, 7])
        self.parked: list[int] = []
        self.failures, self.end, self.left, self.next = 0, 0.0, len(load), 0
        most = plan.replicas if plan.scaler is None else plan.scaler.most
        self.sides: list[Side] = []
        if plan.prompts is not None:
            self.sides.append(self._side(plan.prompts, plan.fronts, plan.fronts, plan.router))
        first = plan.replicas if plan.scaler is None else min(plan.replicas, most)
        self.sides.append(self._side(plan.kind, most, first, plan.router if plan.prompts is None else "least-requests"))
        self.then: dict[int, int] = {}
        if load.after is not None:
            self.then = {before: request for request, before in enumerate(load.after.tolist()) if before >= 0}
        self.pauses = load.pauses.tolist() if load.pauses is not None else None
        self.wanted: deque[tuple[float, int]] = deque()

    def _side(self, kind: ReplicaKind, most: int, first: int, router: str) -> Side:
        plan = kind.server.plan
        lanes = plan.pp * (1 if kind.server.model.experts else plan.dp)
        names = kind.stage != REST and bool(self.load.blocks)
        index = PrefixIndex(most, self.load.block) if names else None
        copies = []
        for number in range(most):
            made = []
            for _ in range(lanes):
                cache = PrefixCache(number, index) if index is not None else None
                made.append(Replica(kind, self.book, cache))
            copies.append(Copy(number, made))
        view = RouterView([NOWHERE] * most, [NOWHERE] * most, [], index)
        side = Side(kind, copies, ROUTERS.find(router).start(self.plan.seed), view)
        for copy in copies[:first]:
            side.start(copy, 0.0, UP)
        return side

    def run(self) -> FleetResult:
        """Runs until every request has ended."""
        load = self.load
        alone = [request for request in range(len(load)) if load.after is None or load.after[request] < 0]
        arrivals: list[tuple[float, int]] = []
        if load.is_open:
            sent = load.arrival.tolist()
            for request in alone:
                self.book.sent[request] = sent[request]
            arrivals = sorted((sent[request] + self._front(request), request) for request in alone)
        else:
            self.users = deque(alone)
            for _ in range(min(load.concurrency, len(alone))):
                self._ask(0.0)
        for number, side in enumerate(self.sides):
            for copy in side.copies:
                if copy.state == UP:
                    self._plan_failure(0.0, number, copy)
        if self.plan.scaler is not None:
            self._push(self.plan.scaler.every, _TICK, 0, 0, 0)
        place, heap = 0, self.heap
        while self.left:
            if place < len(arrivals) and (not heap or arrivals[place][0] <= heap[0][0]):
                moment, request = arrivals[place]
                place += 1
                self._send(moment, request)
                continue
            moment, event, number, ident, stamp = heapq.heappop(heap)
            if event == _WAKE:
                copy = self.sides[number].copies[ident >> 8]
                lane = copy.lanes[ident & 255]
                if lane.stamp == stamp:
                    self._wake(moment, number, copy, lane, ident & 255)
            elif event == _COME:
                self._send(moment, ident)
            elif event in (_BRING, _HAND):
                self._dispatch(moment, number, self.sides[number].copies[stamp], ident)
            else:
                self._change(moment, event, number, ident, stamp)
        for side in self.sides:
            for copy in side.copies:
                copy.turn = 0
        fronts = self.sides[0].summary(self.end) if len(self.sides) > 1 else None
        return FleetResult(self.book, self.sides[-1].summary(self.end), fronts, self.failures, self.end)

    def _push(self, moment: float, event: int, number: int, ident: int, stamp: int) -> None:
        heapq.heappush(self.heap, (moment, event, number, ident, stamp))

    def _front(self, request: int) -> float:
        """Seconds until a scheduler may see a request that is sent."""
        return FRONT + TOKENISE * self.book.prompt[request]

    def _ask(self, moment: float) -> None:
        """A user sends the next request, if there is one."""
        if self.users:
            self._come(moment, self.users.popleft())

    def _come(self, moment: float, request: int) -> None:
        self.book.sent[request] = moment
        self._push(moment + self._front(request), _COME, 0, request, 0)

    def _send(self, moment: float, request: int) -> None:
        """The router deals a request, which waits until those before it are through the front end of its replica."""
        side = self.sides[0]
        if not side.view.up:
            self.parked.append(request)
            return
        names = self.book.names[request] if self.book.names else ()
        number = side.router.choose(side.view, self.book.prompt[request], names)
        copy, prompt, front = side.copies[number], self.book.prompt[request], self._front(request)
        side.view.requests[number] += 1.0
        side.view.tokens[number] += prompt
        begin = max(moment - front, copy.free)
        copy.free = begin + HANDLE + TOKENISE * prompt
        if begin > moment - front:
            self._push(begin + front, _HAND, 0, request, number)
        else:
            self._dispatch(moment, 0, copy, request)

    def _dispatch(self, moment: float, number: int, copy: Copy, request: int) -> None:
        """A replica has a request; one that fails meanwhile sends it back."""
        if copy.state not in (UP, DRAINING):
            self._send_again(moment, request)
            return
        self.book.replica[request] = copy.number
        turn = copy.turn % len(copy.lanes)
        copy.turn += 1
        lane = copy.lanes[turn]
        before = lane.stamp
        lane.take(moment, request)
        if lane.stamp != before and lane.until < math.inf:
            self._push(lane.until, _WAKE, number, copy.number << 8 | turn, lane.stamp)

    def _wake(self, moment: float, number: int, copy: Copy, lane: Replica, turn: int) -> None:
        done = lane.wake(moment)
        if lane.until < math.inf:
            self._push(lane.until, _WAKE, number, copy.number << 8 | turn, lane.stamp)
        if not done:
            return
        side = self.sides[number]
        for request in done:
            side.view.requests[copy.number] -= 1.0
            side.view.tokens[copy.number] -= self.book.prompt[request]
            if lane.kind.stage == FIRST and self.book.output[request] > 1:
                self._bring(moment, copy, request)
            else:
                self._end(moment, request)
        if copy.state == DRAINING and not any(one.unfinished_requests() for one in copy.lanes):
            side.close(copy, moment, OFF)

    def _bring(self, moment: float, copy: Copy, request: int) -> None:
        """A prefill has ended: its cache travels to the replica with the fewest requests, over the NICs of both, one at a time."""
        side = self.sides[1]
        if not side.view.up:
            self._send_again(moment, request)
            return
        there = side.copies[side.router.choose(side.view, self.book.prompt[request], ())]
        begin = max(moment + START, copy.link, there.link)
        copy.link = there.link = begin + self.plan.seconds_of_token * self.book.prompt[request]
        side.view.requests[there.number] += 1.0
        side.view.tokens[there.number] += self.book.prompt[request]
        self._push(there.link, _BRING, 1, request, there.number)

    def _end(self, moment: float, request: int) -> None:
        """A request has its last token; what waited for it is sent."""
        self.book.last[request] = moment
        self.end = max(self.end, moment)
        self.left -= 1
        follows = self.then.get(request)
        if follows is not None:
            self._come(moment + (self.load.pause if self.pauses is None else self.pauses[follows]), follows)
        elif not self.load.is_open:
            self._ask(moment + self.load.pause)

    def _send_again(self, moment: float, request: int) -> None:
        """A request whose replica failed starts anew."""
        self.book.emitted[request] = 0
        self.book.resent[request] += 1
        self._push(moment + self._front(request), _COME, 0, request, 0)

    def _plan_failure(self, moment: float, number: int, copy: Copy) -> None:
        if math.isfinite(self.plan.mtbf):
            copy.life += 1
            self._push(moment + float(self.draws.exponential(self.plan.mtbf)), _FAIL, number, copy.number, copy.life)

    def _change(self, moment: float, event: int, number: int, ident: int, stamp: int) -> None:
        """A replica fails, is ready, or the autoscaler looks."""
        if event == _TICK:
            self._scale(moment)
            return
        side = self.sides[number]
        copy = side.copies[ident]
        if event == _FAIL:
            if copy.state not in (UP, DRAINING) or copy.life != stamp:
                return
            self.failures += 1
            left = [request for lane in copy.lanes for request in lane.unfinished_requests()]
            for lane in copy.lanes:
                lane.clear()
                if lane.cache is not None:
                    lane.cache.clear()
            side.close(copy, moment, COLD)
            self._push(moment + self.plan.cold_start, _READY, number, ident, copy.life)
            for request in left:
                self._send_again(moment, request)
        elif copy.state == COLD and copy.life == stamp:
            side.open(copy, moment)
            self._plan_failure(moment, number, copy)
            if number == 0:
                parked, self.parked = self.parked, []
                for request in parked:
                    self._send(moment, request)

    def _scale(self, moment: float) -> None:
        """The autoscaler starts and stops replicas of the last side."""
        scaler, number = self.plan.scaler, len(self.sides) - 1
        assert scaler is not None
        side = self.sides[number]
        here = sum(count for count in side.view.requests if count < NOWHERE) + len(self.parked)
        now = [copy for copy in side.copies if copy.state in (UP, COLD)]
        want = min(scaler.most, max(scaler.least, math.ceil(here / scaler.target - 1e-9)))
        self.wanted.append((moment, want))
        while self.wanted[0][0] < moment - scaler.calm:
            self.wanted.popleft()
        want = min(max(want, len(now)), scaler.most) if want >= len(now) else max(one for _, one in self.wanted)
        if want > len(now):
            spare = [copy for copy in side.copies if copy.state == DRAINING]
            for copy in spare[: want - len(now)]:
                side.open(copy, moment)
            for copy in [copy for copy in side.copies if copy.state == OFF][: max(0, want - len(now) - len(spare))]:
                side.start(copy, moment, COLD)
                copy.life += 1
                side.close(copy, moment, COLD)
                self._push(moment + self.plan.cold_start, _READY, number, copy.number, copy.life)
        for copy in [copy for copy in reversed(now) if copy.state == UP][: max(0, len(now) - want)]:
            side.close(copy, moment, DRAINING if any(lane.unfinished_requests() for lane in copy.lanes) else OFF)
        self._push(moment + scaler.every, _TICK, 0, 0, 0)


def run_fleet(plan: FleetPlan, load: ServeLoad) -> FleetResult:
    """Serves `load` with a fleet."""
    return ReplicasRun(plan, load).run()


def stage_of(apart: bool, front: bool) -> int:
    """What replicas of a side compute of a request."""
    return WHOLE if not apart else FIRST if front else REST


def columns_of(book: RequestBook) -> tuple[Floats, Floats, Floats]:
    """[requests] seconds to the first token, for each further one (not a number without any), and to the last."""
    sent, first, last = (np.array(values) for values in (book.sent, book.first, book.last))
    output = np.array(book.output, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(output > 1.0, (last - first) / (output - 1.0), np.nan)
    return first - sent, each, last - sent
