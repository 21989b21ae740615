"""How many replicas keep the limits, and the answer of a fleet of that size."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.predict.answer.money import bill
from windtunnel.serving.disaggregated import transfer_seconds
from windtunnel.serving.drafting import times_of
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.predict import BACKLOG, check_latency_limits, with_gpus, within_context
from windtunnel.serving.records import RequestRecords
from windtunnel.serving.replicas.answer import FleetSeries, FleetServed, FleetSide, FleetSpread, FleetTry
from windtunnel.serving.replicas.pass_table import PassTable
from windtunnel.serving.replicas.replica import ReplicaKind
from windtunnel.serving.replicas.run import Autoscaler, FleetPlan, FleetResult, SideResult, columns_of, run_fleet, stage_of
from windtunnel.serving.room import room_of
from windtunnel.serving.server import Server, more_room
from windtunnel.serving.simulate import most_tokens

KEEP = 0.9
"""Share of requests that keep the limits of a fleet that is large enough."""

SLICE = 16
"""Replicas of which a larger fleet's share of the load is simulated while its size is sought."""

MOST = 1024
"""Replicas of a fleet at most."""

SERIES = 240
"""Pieces of time of what pages draw."""

READY = 0.8
"""Requests in flight of a replica for which an autoscaler aims, over those at the peak of a fleet that just keeps the limits."""


@dataclass(frozen=True)
class FleetQuestion:
    """What is asked of a fleet. `load`: all requests; `probe`: (rate or users of `part` of the whole at its peak, as a load),
    for the search of a size. `replicas`, `fronts`: None where the size is sought."""

    server: Server
    front: Server | None
    load: ServeLoad
    probe: Callable[[float], ServeLoad]
    router: str
    ttft: float | None = None
    tpot: float | None = None
    replicas: int | None = None
    fronts: int | None = None
    mtbf: float = math.inf
    cold_start: float = 120.0
    scaling: tuple[int, int] | None = None
    target: float | None = None
    first_share: float = 1.0
    seed: int = 1
    notes: tuple[str, ...] = ()


@dataclass
class FleetSizer:
    """Runs fleets of a question; passes and rooms are worked out once."""

    asked: FleetQuestion
    tries: list[FleetTry] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked = self.asked
        check_latency_limits(asked.ttft, asked.tpot)
        if asked.server.speculation is not None:
            raise SpecError("speculate", "drafted tokens", "a server without drafts: a fleet's replicas have none")
        self.kind = self._kind(asked.server, asked.load, asked.front is not None, False)
        self.fronts = None if asked.front is None else self._kind(asked.front, asked.load, True, True)

    @staticmethod
    def _kind(server: Server, load: ServeLoad, apart: bool, front: bool) -> ReplicaKind:
        times = times_of(server)
        room = room_of(server, times)
        longest = int((load.prompt + (1 if front else load.output)).max())
        if longest > (most := most_tokens(times, room.lane_tokens)):
            allowed = f"at most {most}, which the cache of a lane holds"
            raise PlanError("load", f"a request of {longest} tokens", allowed, more_room(server))
        ranks = server.plan.dp if server.model.experts else 1
        return ReplicaKind(server, PassTable(times, longest), room.lane_tokens * ranks, stage_of(apart, front))

    def plan(self, replicas: int, fronts: int) -> FleetPlan:
        """A fleet of this size, without failures."""
        asked = self.asked
        moved = 0.0 if asked.front is None else transfer_seconds(asked.front, asked.server)
        return FleetPlan(self.kind, replicas, asked.router, self.fronts, fronts, moved, seed=asked.seed)

    def kept_share(self, load: ServeLoad, result: FleetResult) -> tuple[float, Floats]:
        """The share of the requests that are judged which keep the limits, and which of all do."""
        ttft, tpot, _ = columns_of(result.book)
        good = np.ones(len(ttft), bool)
        if self.asked.ttft is not None:
            good &= ttft <= self.asked.ttft
        if self.asked.tpot is not None:
            good &= ~(tpot > self.asked.tpot)
        judged = load.mask_judged(np.array(result.book.sent))
        return float(good[judged].mean()), np.asarray(good, np.float64)

    def holds(self, replicas: int, fronts: int = 0) -> bool:
        """Whether a fleet of this size keeps the limits at the peak, and keeps up."""
        part = min(1.0, SLICE / replicas) if not fronts else 1.0
        load = within_context(self.asked.probe(part), self.asked.server.model.max_seq)
        few = max(1, round(replicas * part))
        result = run_fleet(self.plan(few, fronts), load)
        share = self.kept_share(load, result)[0]
        good = share >= KEEP and keeps_up(load, result)
        self.tries.append(FleetTry(replicas, fronts, share, good))
        return good

    def size(self) -> tuple[int, int]:
        """The fewest replicas, and those for prompts, that keep the limits at the peak. PlanError where none do."""
        if self.asked.front is None:
            return (self.asked.replicas or self._fewest(self.holds)), 0
        fronts = self.asked.fronts or self._fewest(lambda count: self._prompts_hold(count))
        return (self.asked.replicas or self._fewest(lambda count: self.holds(count, fronts))), fronts

    def _prompts_hold(self, fronts: int) -> bool:
        """Whether so many replicas for prompts keep the limit of first tokens: what decodes has no say in these."""
        load = within_context(self.asked.probe(1.0), self.asked.server.model.max_seq)
        short = replace(load, output=np.minimum(load.output, 2))
        result = run_fleet(self.plan(max(4, fronts), fronts), short)
        ttft = columns_of(result.book)[0][short.mask_judged(np.array(result.book.sent))]
        share = 1.0 if self.asked.ttft is None else float((ttft <= self.asked.ttft).mean())
        good = share >= KEEP and keeps_up(short, result)
        self.tries.append(FleetTry(0, fronts, share, good))
        return good

    def _fewest(self, holds: Callable[[int], bool]) -> int:
        """The least number for which `holds`: doubled until one does, then halved between."""
        high = 1
        while not holds(high):
            if high >= MOST:
                words = " ".join(
                    f"--{name} {value:g}" for name, value in (("ttft", self.asked.ttft), ("tpot", self.asked.tpot)) if value
                )
                shares = ", ".join(
                    f"{100 * each.kept:.0f} % of requests with {each.replicas or each.fronts}"
                    + (", whose queue grows" if each.kept >= KEEP else "")
                    for each in self.tries[-2:]
                )
                raise PlanError("fleet", words or "the load", f"limits that a fleet of {MOST} replicas keeps: {shares}",
                                "Longer limits, another plan of a replica (--tp) or another GPU may do.")  # fmt: skip
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high


def keeps_up(load: ServeLoad, result: FleetResult) -> bool:
    """Whether what is left after the last arrival takes no longer than its last requests do on their own. Turns wait for those
    before them, so sessions keep up by themselves."""
    if not load.is_open or load.after is not None:
        return True
    span = float(load.arrival.max() - load.arrival.min())
    _, tpot, e2e = columns_of(result.book)
    alone = float(np.quantile(load.output, 0.9)) * float(np.nanmedian(tpot)) if np.isfinite(tpot).any() else float(np.median(e2e))
    return span <= 0.0 or result.end - float(load.arrival.min()) - span <= BACKLOG * span + 2.0 * alone + 1.0


def answer_fleet(asked: FleetQuestion) -> FleetServed:
    """The fleet of a question: its size sought where none is stated, then its whole load, with failures and the autoscaler."""
    asked = replace(asked, load=within_context(asked.load, asked.server.model.max_seq))
    sizer = FleetSizer(asked)
    needs = asked.scaling is not None and asked.target is None
    replicas, fronts = sizer.size() if asked.replicas is None or (asked.front is not None and asked.fronts is None) or needs \
        else (asked.replicas, asked.fronts or 0)  # fmt: skip
    if needs and asked.replicas is not None:
        replicas = sizer._fewest(sizer.holds)
    scaler = None
    if asked.scaling is not None:
        target = asked.target or _target_of(sizer, replicas, fronts)
        scaler = Autoscaler(*asked.scaling, target)
        replicas = min(max(scaler.least, math.ceil(replicas * asked.first_share)), scaler.most)
    plan = replace(sizer.plan(replicas, fronts), mtbf=asked.mtbf, cold_start=asked.cold_start, scaler=scaler)
    return _answer(sizer, plan, run_fleet(plan, asked.load))


def _target_of(sizer: FleetSizer, replicas: int, fronts: int) -> float:
    """Requests in flight of a replica at the peak, less what READY leaves free."""
    part = min(1.0, SLICE / replicas)
    load = within_context(sizer.asked.probe(part), sizer.asked.server.model.max_seq)
    few = max(1, round(replicas * part))
    result = run_fleet(sizer.plan(few, fronts), load)
    e2e = columns_of(result.book)[2]
    return max(1.0, READY * float(e2e.sum()) / max(result.end, 1e-9) / few)


def _answer(sizer: FleetSizer, plan: FleetPlan, result: FleetResult) -> FleetServed:
    asked, book = sizer.asked, result.book
    ttft, tpot, e2e = columns_of(book)
    load = asked.load
    first = float(np.array(book.sent).min())
    seconds = max(result.end - first, 1e-9)
    sides = [(asked.server, result.whole)] + ([(asked.front, result.fronts)] if asked.front is not None and result.fronts else [])
    described = [_side(server, found) for server, found in sides]
    prices = [_price(server, found, float(load.output.sum())) for server, found in sides]
    dollars = None if any(price[0] is None for price in prices) else sum(price[0] or 0.0 for price in prices)
    joules = None if any(price[1] is None for price in prices) else sum(price[1] or 0.0 for price in prices)
    return FleetServed(
        described[0], described[1] if len(described) > 1 else None, asked.router, load, seconds,
        FleetSpread.of(ttft), FleetSpread.of(tpot), FleetSpread.of(e2e), asked.ttft, asked.tpot, sizer.kept_share(load, result)[0],
        load.is_open and keeps_up(load, result), sum(book.hits) / max(1, sum(book.prompt)), sum(book.preempted), result.failures,
        sum(book.resent), dollars, joules, _series(result, first), plan.scaler, tuple(sizer.tries),
        (*asked.notes, *load.notes),
        RequestRecords(
            np.array(book.sent) - first, ttft, tpot, e2e, load.prompt, load.output,
            np.array(book.hits, np.int64), np.array(book.preempted, np.int64),
            {name: np.array(getattr(book, name), np.int64) for name in ("replica", "resent")},
        ),
    )  # fmt: skip


def _lanes(server: Server) -> int:
    return server.plan.pp * (1 if server.model.experts else server.plan.dp)


def _side(server: Server, found: SideResult) -> FleetSide:
    busy = found.busy / max(found.on * _lanes(server), 1e-12)
    return FleetSide(server, found.peak, busy, found.mean_batch, found.on * server.plan.gpus / 3600.0)


def _price(server: Server, found: SideResult, tokens: float) -> tuple[float | None, float | None]:
    """Dollars and joules of the time in which replicas of a side took GPUs."""
    lanes = _lanes(server)
    busy, prompts = found.busy / lanes, found.prompt_busy / lanes
    parts = {"matmul": prompts, "memory_bound": busy - prompts, "wait_data": max(0.0, found.on - busy)}
    paid = bill(with_gpus(server, server.plan.gpus).job, found.on, tokens, [parts])
    return paid.cost_per_step, paid.energy_j_per_step


def _series(result: FleetResult, first: float) -> FleetSeries:
    """What pages draw over time."""
    book = result.book
    edges = np.linspace(first, max(result.end, first + 1e-9), SERIES + 1)
    middle = (edges[1:] + edges[:-1]) / 2.0
    sent, started, ended = (np.sort(np.array(values)) for values in (book.sent, book.first, book.last))
    came, began, left = (np.searchsorted(values, middle) for values in (sent, started, ended))
    rate = np.diff(np.searchsorted(sent, edges)) / np.diff(edges)
    moments = np.array([change[0] for change in result.whole.changes])
    counts = np.array([change[1] for change in result.whole.changes], np.float64)
    place = np.maximum(np.searchsorted(moments, middle, side="right") - 1, 0)
    return FleetSeries(middle - first, rate, (came - left).astype(np.float64), (came - began).astype(np.float64), counts[place])
