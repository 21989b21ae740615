"""The engine against a slow evaluator of the same rules, written another way, on the programs that jobs become.

Without the compute tax the rules are: an operator starts at the latest of its stream's end, the end of what it waits for, and the
time when the host has enqueued it; a meeting begins when its last participant has posted, and takes the longest of their seconds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from random_jobs import jobs

from windtunnel.engine import Program, run
from windtunnel.engine.program import HOST_SYNC, JOIN
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.lower import lower
from windtunnel.spec import Job, load_job
from windtunnel.workload import build

UNKNOWN = float("nan")


def latest(*times: float) -> float:
    """The largest, or UNKNOWN if one of them is (Python's `max` would depend on the order)."""
    return UNKNOWN if any(t != t for t in times) else max(times)


@dataclass
class Meetings:
    """What is known of the meetings so far: posts by key and (rank, instance)."""

    posts: dict[int, dict[tuple[int, int], float]] = field(default_factory=lambda: defaultdict(dict))
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    ranks: dict[int, int] = field(default_factory=dict)

    def end(self, key: int) -> float:
        posts = self.posts[key]
        return latest(*posts.values()) + self.seconds[key] if len(posts) == self.ranks[key] else UNKNOWN


class Slow:
    """Sweeps over all ranks, with unknown times spreading through what depends on them, until nothing new comes out."""

    def __init__(self, program: Program) -> None:
        self.p, self.meetings = program, Meetings()
        self.ends = np.full(len(program.template), UNKNOWN)
        self.meeting_row = np.cumsum(program.template < 0) - 1

    def makespan(self) -> float:
        while True:
            before = int(np.isnan(self.ends).sum())
            tails = [self.rank(r) for r in range(self.p.ranks)]
            left = int(np.isnan(self.ends).sum())
            if left == 0 and before == 0:
                return max(tails)
            assert left < before or left == 0, "nothing moves: a deadlock"

    def rank(self, r: int) -> float:
        p = self.p
        streams: dict[int, float] = defaultdict(float)
        host, first = 0.0, int(p.rank_start[r])
        for i in range(first, int(p.rank_start[r + 1])):
            awaited = [float(self.ends[first + w]) for w in p.waits[p.wait_start[i] : p.wait_start[i + 1]].tolist()]
            if p.template[i] < 0:
                host, end = self.meet(r, i, host, awaited, streams)
            else:
                host, end = self.work(i, host, awaited, streams)
            self.ends[i] = end
            if p.flags[i] & HOST_SYNC:
                host = latest(host, end)
        return latest(*streams.values())

    def work(self, i: int, host: float, awaited: list[float], streams: dict[int, float]) -> tuple[float, float]:
        p, ends, last = self.p, [0.0], 0.0
        rows = range(int(p.template_start[p.template[i]]), int(p.template_start[p.template[i] + 1]))
        for _ in range(int(p.times[i])):
            done: list[float] = []
            for row in rows:
                host += float(p.op_host[row])
                inner = [done[w] for w in (int(p.op_wait0[row]), int(p.op_wait1[row])) if w >= 0]
                joined = [last] if p.flags[i] & JOIN else []
                stream = int(p.op_stream[row])
                start = latest(streams[stream], host, *awaited, *inner, *joined)
                done.append(start + float(p.op_seconds[row]))
                streams[stream] = done[-1]
            last = latest(*done)
            ends += done
        return host, latest(*ends)

    def meet(self, r: int, i: int, host: float, awaited: list[float], streams: dict[int, float]) -> tuple[float, float]:
        p, v = self.p, int(self.meeting_row[i])
        host += float(p.rv_host[v])
        stream = int(p.rv_stream[v])
        post = latest(streams[stream], host, *awaited)
        found = []
        for part in range(int(p.part_start[v]), int(p.part_start[v + 1])):
            key = int(p.part_key[part])
            self.meetings.ranks[key] = int(p.part_participants[part])
            self.meetings.seconds[key] = max(self.meetings.seconds[key], float(p.part_seconds[part]))
            if post == post:
                self.meetings.posts[key][r, i] = post
            found.append(self.meetings.end(key))
        streams[stream] = latest(*found)
        return host, streams[stream]


def untaxed(job: Job) -> Program:
    workload = build(job)
    return replace(lower(workload, price(workload)).program, compute_tax=0.0)


@examples(10)
@given(jobs())
def test_engine_agrees_with_the_slow_evaluator(job: Job) -> None:
    program = untaxed(job)
    slow, timeline = Slow(program), run(program)
    assert timeline.makespan == pytest.approx(slow.makespan(), rel=1e-12)
    assert timeline.end == pytest.approx(slow.ends, rel=1e-12)


@pytest.mark.parametrize("name", ["llama3-8b-8xh100", "megatron-22b-8"])
def test_engine_agrees_on_jobs_of_the_catalogue(name: str) -> None:
    program = untaxed(load_job(name))
    assert run(program).makespan == pytest.approx(Slow(program).makespan(), rel=1e-12)


@examples(15)
@given(jobs())
def test_the_tax_only_slows_and_no_more_than_it_says(job: Job) -> None:
    """Computing beside communication keeps at least 1 - tax of its rate, so the step grows by at most that factor."""
    workload = build(job)
    program = lower(workload, price(workload)).program
    free, taxed = run(replace(program, compute_tax=0.0)), run(program)
    assert free.makespan <= taxed.makespan * (1 + 1e-12)
    assert taxed.makespan <= free.makespan / (1 - program.compute_tax) * (1 + 1e-12)
    assert (taxed.stretch.sum(axis=1) <= program.compute_tax * taxed.busy[:, 0, :].sum(axis=1) + 1e-12).all()
