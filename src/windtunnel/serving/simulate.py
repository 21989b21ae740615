"""Requests through one lane: an event for each forward pass, or for a run of passes that decode the same requests.

Lanes that are ranks of DP attention share their experts: they pass together (vLLM's ranks step in waves and run empty passes where
they have no request; SGLang's gather what each runs and add idle batches; TensorRT-LLM's add a dummy request).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import PlanError
from windtunnel.serving.cache import PagedCache
from windtunnel.serving.core import run_on_core
from windtunnel.serving.engine import ServeEngine
from windtunnel.serving.engines.rules import SchedulerRules, rules_of
from windtunnel.serving.engines.sglang import Sglang
from windtunnel.serving.lane import Lane, PassRecord, ServeStep
from windtunnel.serving.lengths import Passing, cache_bytes, passing_of
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.server import more_room
from windtunnel.serving.step_times import StepTimes
from windtunnel.serving.tiers import TierStore

RUN = 128
"""Passes at most that are booked as one event: the cached tokens of a request grow by so many meanwhile."""


@dataclass(frozen=True)
class LaneResult:
    """What happened: seconds at which each request was `sent`, had its `first` and its `last` token; -1 where it was not served.
    `busy`: seconds of passes, `steps` their number, `hits` prompt tokens from the cache, `peak` share of the cache in use at most,
    `mean_batch` requests of the mean pass, `log`: what passes did, if it was asked for; `tier_hits`: prompt tokens from
    each tier; `reused`, `losses`: as of
    `Lane`."""

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
    reused: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    losses: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    log: tuple[PassRecord, ...] = ()
    verified: int = 0
    rejected: int = 0
    tier_hits: tuple[int, ...] = ()


FRONT, TOKENISE = 2.0e-3, 4.0e-6
"""Seconds from a user's send until the scheduler may see the request: HTTP and processes, assumed; and for each prompt token.
Hugging Face's tokenizers 0.23 on one core of a Xeon, vocabularies of 65k and 129k, prompts of 1 and 8 Ki tokens: 3.0 to 4.5 us a
token of English text, 5.8 to 6.9 of random words, as benchmarks send them. An engine tokenises one request at a time."""

HANDLE = 1.0e-3
"""Those of FRONT in which the front end, one process, has no time for another request: it parses, checks and sends on. With one of
them two A100s serve 76 requests a second of 220 + 198 tokens of a 1B model, with more 120 (vllm-project/vllm pull request 17546):
13 ms a request, most of them for its tokens (`engine.ServeEngine.sent`); assumed."""


def tokenise_of(load: ServeLoad) -> float:
    """Seconds in which a token of the load's prompts is tokenised."""
    return TOKENISE if load.tokenise is None else load.tokenise


class LaneClock:
    """Time, arrivals and what is counted while a lane runs. `coming`: (moment at which the scheduler sees it, request)."""

    def __init__(self, load: ServeLoad, record: bool = False) -> None:
        count = len(load)
        self.log: list[PassRecord] | None = [] if record else None
        self.load, self.now, self.busy, self.steps, self.batch, self.peak, self.prompts = load, 0.0, 0.0, 0, 0.0, 0.0, 0.0
        self.sent, self.first, self.last = (np.full(count, -1.0) for _ in range(3))
        self.next, self.since, self.began, self.free, self.came = 0, math.inf, math.inf, 0.0, 0.0
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
        """A user sends `request`; the scheduler sees it soon after, or when those before it are through the front end."""
        self.sent[request] = moment
        free = self.free if moment >= self.came else 0.0  # arrivals are known ahead, and what follows on others comes between them
        begin, tokens, self.came = max(moment, free), tokenise_of(self.load) * float(self.load.prompt[request]), moment
        self.free = begin + HANDLE + tokens
        heapq.heappush(self.coming, (begin + FRONT + tokens, request))

    def send(self, lane: Lane, engine: ServeEngine) -> None:
        """Requests that the scheduler sees now wait, if it looks: `polls` decoding passes after it last did. An engine that
        schedules ahead chose this pass when the one before it began."""
        if self.since < engine.polls:
            return
        self.since = 0.0
        moment = min(self.now, self.began) if engine.ahead and lane.running else self.now
        while self.coming and self.coming[0][0] <= moment:
            seen, request = heapq.heappop(self.coming)
            ready = lane.fetch(request, seen)
            if ready > seen:
                heapq.heappush(self.coming, (ready, request))
            else:
                lane.waiting.append(request)

    def skip_to(self, moment: float) -> None:
        """Nothing runs until `moment`: what comes then is chosen at once."""
        self.now, self.since, self.began = max(self.now, moment), math.inf, math.inf

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
                    follows = self.then[request]
                    pauses = self.load.pauses
                    self.send_at(self.now + (self.load.pause if pauses is None else float(pauses[follows])), follows)


@dataclass
class ServedRank:
    """A lane with its rules and its clock; `count`: ranks that do the same."""

    lane: Lane
    rules: SchedulerRules
    clock: LaneClock
    count: int = 1


class Booked(NamedTuple):
    """What a rank computes in a pass: `step` on `rank`, as the pass `one`, which samples `sampled` tokens."""

    rank: ServedRank
    step: ServeStep
    one: Passing
    sampled: int


def run_lane(times: StepTimes, load: ServeLoad, tokens: int, record: bool = False) -> LaneResult:
    """Serves `load` on a lane whose cache holds `tokens`. PlanError for a request that the cache can never hold."""
    return run_ranks(times, [load], tokens, record=record)[0]


def run_ranks(
    times: StepTimes, loads: Sequence[ServeLoad], tokens: int, counts: Sequence[int] = (1,), record: bool = False
) -> list[LaneResult]:
    """Serves each of `loads` on a lane of its own, as `counts` DP-attention ranks do that share the experts: they begin each pass
    together, and it lasts as long as that of the slowest; a rank without requests runs an empty one. Errors as of `run_lane`.

    The C++ core runs them where it knows how (`serving.core`), else `run_ranks_here`; both come to the same."""
    for load in loads:
        longest = int((load.prompt + load.output).max()) if len(load) else 0
        if longest > (most := most_tokens(times, tokens)):
            raise PlanError(
                "load", f"a request of {longest} tokens", f"at most {most}, which the cache of a lane holds",
                more_room(times.server),
            )  # fmt: skip
    limits = {"front": FRONT, "handle": HANDLE, "tokenise": tokenise_of(loads[0]), "run": RUN, "record": record}
    ran = run_on_core(times, loads, tokens // times.server.engine.block, counts, limits)
    return run_ranks_here(times, loads, tokens, counts, record) if ran is None else [_core_result(lane) for lane in ran]


def run_ranks_here(
    times: StepTimes, loads: Sequence[ServeLoad], tokens: int, counts: Sequence[int] = (1,), record: bool = False
) -> list[LaneResult]:
    """`run_ranks` in Python, of requests that the cache can hold."""
    engine = times.server.engine
    ranks = [
        ServedRank(lane_of(times, load, tokens), rules_of(engine), LaneClock(load, record), count)
        for load, count in zip(loads, counts, strict=True)
    ]
    while True:
        steps = [_next_step(rank, engine) for rank in ranks]
        if any(step is not None for step in steps):
            run_pass(times, ranks, steps)
            continue
        coming = min(rank.clock.until_arrival() for rank in ranks)
        if not math.isfinite(coming):
            break
        moment = min(rank.clock.coming[0][0] for rank in ranks if rank.clock.coming)
        for rank in ranks:
            rank.clock.skip_to(moment)
    return [_result(rank) for rank in ranks]


def _next_step(rank: ServedRank, engine: ServeEngine) -> ServeStep | None:
    """The scheduler looks at new requests, and chooses a pass."""
    rank.clock.send(rank.lane, engine)
    return rank.rules.next_step(rank.lane)


def _result(rank: ServedRank) -> LaneResult:
    lane, clock = rank.lane, rank.clock
    assert not lane.waiting and not lane.running, "requests were left behind"
    return LaneResult(
        clock.sent, clock.first, clock.last, clock.busy, clock.steps, lane.hits, lane.preempted, lane.recomputed, clock.peak,
        clock.batch / max(clock.steps, 1), clock.prompts, lane.reused, lane.losses,
        tuple(clock.log or ()), lane.verified, lane.rejected,
        () if lane.tiers is None else tuple(count * lane.cache.block for count in lane.tiers.hits),
    )  # fmt: skip


def _core_result(ran: dict[str, Any]) -> LaneResult:
    """What the core says of a lane."""
    moments, numbers = ran["log_moments"].tolist(), ran["log_counts"].tolist()
    log = tuple(
        PassRecord(begin, end, running, waiting, tokens, passes, used)
        for (begin, end, used), (running, waiting, tokens, passes) in zip(moments, numbers, strict=True)
    )
    return LaneResult(
        ran["sent"], ran["first"], ran["last"], ran["busy"], ran["steps"], ran["hits"], ran["preempted"], ran["recomputed"],
        ran["peak"], ran["batch"] / max(ran["steps"], 1), ran["prompts"], ran["reused"], ran["losses"], log, ran["verified"],
        ran["rejected"],
    )  # fmt: skip


def run_pass(times: StepTimes, ranks: Sequence[ServedRank], steps: Sequence[ServeStep | None]) -> None:
    """Runs the steps of all ranks as one pass, and the passes after it that decode the same requests."""
    booked = [_book_pass(rank, step) for rank, step in zip(ranks, steps, strict=True) if step is not None]
    seconds = _seconds(times, ranks, booked)
    prompts = any(part.one.prompt for part in booked)
    times_more = 0 if prompts else _repeats(times, ranks, booked)
    before = 0.0  # the last of the passes begins so much later
    if times_more:
        seconds = run_seconds(times, ranks, booked, times_more + 1)
        if any(rank.clock.until_arrival() <= seconds for rank in ranks):
            before = run_seconds(times, ranks, booked, times_more)
        for part in booked:
            _decode_on(part, times_more)
    for rank, step in zip(ranks, steps, strict=True):
        clock, lane, size = rank.clock, rank.lane, 0 if step is None else len(step.ids)
        clock.began = clock.now + before
        clock.now += seconds
        clock.busy += seconds
        clock.prompts += seconds if prompts else 0.0
        clock.steps += times_more + 1
        clock.since = math.inf if prompts else clock.since + times_more + 1
        clock.batch += size * (times_more + 1.0)
        clock.peak = max(clock.peak, 1.0 - lane.cache.available / max(lane.cache.total, 1))
        if clock.log is not None:
            clock.log.append(_moment(rank, step, seconds, times_more + 1))
        if step is not None:
            clock.end(*rank.rules.finish(lane, step))


def _book_pass(rank: ServedRank, step: ServeStep) -> Booked:
    """The pass of `step`."""
    load, lane = rank.lane.load, rank.lane
    computed, known = lane.computed[step.ids], load.prompt[step.ids] + lane.emitted[step.ids]
    prefill = (computed < known - 1) | (lane.emitted[step.ids] == 0)
    one = passing_of(step.counts, computed, prefill)
    return Booked(rank, step, one, int((computed + step.counts >= known).sum()) + one.verified)


def _decode_on(part: Booked, passes: int) -> None:
    """Books `passes` more passes that decode the requests of a step."""
    lane, ids = part.rank.lane, part.step.ids
    grown = lane.cache.grow_all(ids, lane.computed[ids] + part.rank.rules.reserve(lane) + lane.grown(ids, passes))
    assert grown
    lane.decode_on(ids, passes)
    if isinstance(part.rank.rules, Sglang):
        part.rank.rules.fall(passes)


def _moment(rank: ServedRank, step: ServeStep | None, seconds: float, passes: int) -> PassRecord:
    """What the passes that were just booked did."""
    lane, clock = rank.lane, rank.clock
    tokens = 0 if step is None else int(step.counts.sum()) * passes
    used = 1.0 - lane.cache.available / max(lane.cache.total, 1)
    return PassRecord(clock.now - seconds, clock.now, len(lane.running), len(lane.waiting), tokens, passes, used)


def _seconds(times: StepTimes, ranks: Sequence[ServedRank], booked: Sequence[Booked]) -> float:
    """Seconds of one pass of all ranks."""
    if len(ranks) == 1:
        return times.seconds(booked[0].one, booked[0].sampled)
    idle = sum(rank.count for rank in ranks) - sum(part.rank.count for part in booked)
    return times.meeting_seconds([(part.one, part.sampled, part.rank.count) for part in booked], idle)


def _repeats(times: StepTimes, ranks: Sequence[ServedRank], booked: Sequence[Booked]) -> int:
    """How many more passes like this one, in which all running requests decode, come before anything changes on any rank."""
    most = min(_most_repeats(part) for part in booked)
    coming = min(rank.clock.until_arrival() for rank in ranks)
    if most <= 0 or not math.isfinite(coming):
        return max(0, most)
    since = max(rank.clock.since for rank in ranks)
    blind = 0 if math.isinf(since) else min(most, max(0, times.server.engine.polls - int(since) - 1))  # before the next look
    most = min(most, int(max(coming, 0.0) / _seconds(times, ranks, booked)))
    while most > 0 and run_seconds(times, ranks, booked, most) >= coming:  # it comes before the last of these passes begins
        most -= 1
    return max(most, blind)


def _most_repeats(part: Booked) -> int:
    """How often a rank's step comes again if no request comes."""
    lane, rules, ids = part.rank.lane, part.rank.rules, part.step.ids
    if len(ids) != len(lane.running) or part.one.verified != len(ids) * lane.drafts:
        return 0
    most = min(int(lane.passes_left(ids).min()) - 1, RUN, rules.repeats(lane))
    tokens, held, block = lane.computed[ids] + rules.reserve(lane), lane.cache.held[ids], lane.cache.block
    while most > 0 and int(np.maximum(-(-(tokens + lane.grown(ids, most)) // block) - held, 0).sum()) > lane.cache.available:
        most //= 2
    return most


def run_seconds(times: StepTimes, ranks: Sequence[ServedRank], booked: Sequence[Booked], passes: int) -> float:
    """Seconds of `passes` that decode the same requests, of which the booked one is the first."""
    longer = []
    for part in booked:
        row = part.rank.lane.speculation
        grown = part.one.decodes * (passes - 1) / 2.0
        if row is not None:
            grown = row.mean_grown(part.rank.lane.places[part.step.ids], passes)
        longer.append(part._replace(one=part.one._replace(cached=part.one.cached + grown)))
    return passes * _seconds(times, ranks, longer)


def lane_of(times: StepTimes, load: ServeLoad, tokens: int) -> Lane:
    """A lane whose cache holds `tokens`."""
    server, block = times.server, times.server.engine.block
    tiers = None
    if server.tiers:
        tiers = TierStore(server.tiers, cache_bytes(server)[0] * server.plan.tp * server.plan.pp * block)
    return Lane(load, PagedCache(tokens // block, block, len(load)), server.speculation, tiers)


def most_tokens(times: StepTimes, tokens: int) -> int:
    """Tokens of the longest request that a cache of `tokens` can end, in whole blocks and with its drafts."""
    server = times.server
    return tokens // server.engine.block * server.engine.block - 2 * server.drafts
